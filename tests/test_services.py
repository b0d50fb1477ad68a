"""The servers that tests run against are real, and apart from one test to the next."""

import sqlalchemy


def test_postgres_gives_each_test_an_empty_database(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url)
    with engine.begin() as connection:
        assert sqlalchemy.inspect(connection).get_table_names() == []
        connection.execute(sqlalchemy.text("CREATE TABLE jobs (id text PRIMARY KEY)"))
        connection.execute(sqlalchemy.text("INSERT INTO jobs VALUES ('job-1')"))
    with engine.connect() as connection:
        assert connection.execute(sqlalchemy.text("SELECT id FROM jobs")).scalars().all() == ["job-1"]
        assert connection.dialect.driver == "psycopg"
    engine.dispose()


def test_postgres_gives_the_next_test_another_empty_database(postgres_url: str) -> None:
    engine = sqlalchemy.create_engine(postgres_url)
    assert sqlalchemy.inspect(engine).get_table_names() == []
    engine.dispose()
