"""Fixtures for all tests, and what holds for all of them."""

import uuid
from collections.abc import Iterator

import hypothesis
import pytest

from tests import services

# The machine is shared, so nothing is said by how long an example took.
hypothesis.settings.register_profile("gangline", deadline=None)
hypothesis.settings.load_profile("gangline")


@pytest.fixture(scope="session")
def service_run(tmp_path_factory: pytest.TempPathFactory) -> services.Run:
    return services.Run(tmp_path_factory.getbasetemp())


@pytest.fixture(scope="session")
def kafka_bootstrap(service_run: services.Run) -> str:
    """host:port of a real Kafka broker, shared by the run: use a prefix of your own."""
    return services.kafka_bootstrap(service_run)


@pytest.fixture
def kafka_prefix() -> str:
    """Return a prefix of Kafka's topics that no other test has."""
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def postgres_url(service_run: services.Run) -> Iterator[str]:
    """SQLAlchemy's URL (driver psycopg 3) of a new, empty database of a real PostgreSQL server."""
    import sqlalchemy

    server = sqlalchemy.create_engine(
        services.postgres_server_url(service_run), isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.NullPool
    )
    name = f"test_{uuid.uuid4().hex}"
    with server.connect() as connection:
        connection.execute(sqlalchemy.text(f'CREATE DATABASE "{name}"'))
    yield server.url.set(database=name).render_as_string(hide_password=False)
    with server.connect() as connection:
        connection.execute(sqlalchemy.text(f'DROP DATABASE "{name}" WITH (FORCE)'))
