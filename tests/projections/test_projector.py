"""The tables follow from the log alone: incrementally, anew, after a kill, in either database."""

import contextlib
import json
import sqlite3
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy.engine import Engine

from gangline.events.log import LogCut, LogReplaced
from gangline.events.memory import MemoryLog
from gangline.projections import fold as folding
from gangline.projections import projector as module
from gangline.projections.database import DatabaseUnavailable, open_database, snapshot
from gangline.projections.digest import digest
from gangline.projections.projector import Projector
from gangline.projections.queries import find_job, list_jobs, list_nodes, policy_in_force
from gangline.projections.tables import PROJECTED, TABLES_VERSION, jobs, metadata, positions
from gangline.schemas.errors import Refused
from tests.histories import Script
from tests.projections.histories_to_project import everything


def database(folder: Path, name: str = "tables") -> Engine:
    return open_database(f"sqlite:///{folder}/{name}.sqlite", create=True)


def rows(engine: Engine, table: sqlalchemy.Table) -> list[dict[str, object]]:
    with engine.connect() as connection:
        ordered = sqlalchemy.select(table).order_by(*table.primary_key.columns)
        return [dict(row) for row in connection.execute(ordered).mappings()]


def projected(log: MemoryLog, engine: Engine) -> Engine:
    Projector(log, engine).catch_up()
    return engine


def test_every_table_has_rows_of_an_eventful_history(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    assert [table.name for table in PROJECTED if not rows(engine, table)] == []


def test_a_job_s_life_is_told_in_order(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    first = min(rows(engine, jobs), key=lambda row: int(str(row["submitted_index"])))
    told = [row["kind"] for row in rows(engine, metadata.tables["timeline"]) if row["job_id"] == first["job_id"]]
    assert told == [
        "submitted",
        "admitted",
        "bound",
        "started",
        "started",
        "checkpoint committed",
        "checkpoint refused",
        "exited",
        "stop ordered",
        "exited",
        "attempt ended",
        "requeued",
        "bound",
        "checkpoint rejected",
        "started",
        "exited",
        "attempt ended",
        "ended",
    ]
    assert (first["state"], first["attempts"]) == ("succeeded", 2)


def test_giving_way_is_counted_told_and_no_failure(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    victim = next(row for row in rows(engine, jobs) if row["preemptions"])
    assert (victim["state"], victim["preemptions"], victim["moves"], victim["failures_in_row"]) == ("pending", 1, 0, 0)
    (attempt,) = [row for row in rows(engine, metadata.tables["attempts"]) if row["job_id"] == victim["job_id"]]
    assert (attempt["state"], attempt["stop_reason"], attempt["outcome"]) == ("preempted", "service", None)
    (held, reserved) = sorted(rows(engine, metadata.tables["rooms"]), key=lambda row: str(row["kind"]))
    assert (held["kind"], reserved["kind"]) == ("held", "reserved")
    assert held["job_id"] == reserved["job_id"] == attempt["stop_claimant"]
    told = [row["kind"] for row in rows(engine, metadata.tables["timeline"]) if row["job_id"] == victim["job_id"]]
    assert told == ["submitted", "admitted", "bound", "preemption ordered", "exited", "preempted", "requeued"]


def test_a_rejected_submission_is_an_answer_and_no_job(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    kinds = [row["kind"] for row in rows(engine, metadata.tables["answers"])]
    assert kinds.count("JobRejected") == 1
    assert {row["state"] for row in rows(engine, jobs)} == {"succeeded", "pending", "cancelled"}


def test_the_queues_are_those_of_the_policy_in_force(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    assert [row["path"] for row in rows(engine, metadata.tables["queues"])] == ["a/c", "new"]
    with engine.connect() as connection:
        policy = policy_in_force(connection)
        assert policy is not None
        assert [queue["path"] for queue in json.loads(policy["policy"])["queues"]] == ["a/c", "new"]


def test_an_array_is_one_row_of_the_list_and_its_jobs_are_rows_of_their_own(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    with projected(log, database(tmp_path)).connect() as connection:
        (array,) = [row for row in list_jobs(connection) if row["name"] == "sweep"]
        assert (array["state"], array["array_size"]) == ("succeeded", 2)
        tasks = list_jobs(connection, array=array["job_id"])
        assert [(row["job_id"], row["state"]) for row in tasks] == [
            (f"{array['job_id']}.0", "succeeded"),
            (f"{array['job_id']}.1", "succeeded"),
        ]
        assert find_job(connection, array["job_id"][:10])["job_id"] == array["job_id"]


def test_what_operators_did_to_nodes_and_jobs_is_seen_and_what_was_refused_changed_nothing(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    with engine.connect() as connection:
        first, second = list_nodes(connection)
        assert (first["state"], second["state"]) == ("quarantined", "lost")
        assert (first["cordoned"], first["healthy"], first["report"]) == (1, 0, "the disk is full")
        assert first["broken_gpus"] == [1]
        assert (second["draining"], second["cordon_reason"], second["quarantined"]) == (1, "to be mended", 0)
        (changed,) = [row for row in list_jobs(connection) if row["priority"] == 7]
        assert changed["held"] == 1
    asked = rows(engine, metadata.tables["commands"])
    assert [row["subject"] for row in asked if row["accepted_index"] is None] == ["nowhere"]


def test_an_exit_code_that_came_first_stands(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    shares = [row for row in rows(engine, metadata.tables["placements"]) if row["attempt"] == 1]
    assert '{"1":1}' in [row["exits"] for row in shares]


def test_following_round_by_round_and_computing_anew_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    everything(log)
    anew = digest(projected(log, database(tmp_path, "anew")))
    monkeypatch.setattr(module, "BATCH_SEGMENTS", 1)
    engine = database(tmp_path, "followed")
    steps = 0
    # A new projector each time, so that all it knows comes from its tables.
    while Projector(log, engine).step():
        steps += 1
    assert steps > 10
    assert digest(engine) == anew


def test_a_digest_at_an_index_is_the_same_whatever_comes_later(tmp_path: Path) -> None:
    log = MemoryLog()
    script = Script(log)
    script.starts()
    before = digest(projected(log, database(tmp_path, "before")))
    script.node()
    script.tick()
    assert digest(projected(log, database(tmp_path, "undecided"))) == before
    script.decides()
    assert digest(projected(log, database(tmp_path, "after"))) != before


def test_rebuilding_gives_the_same_tables(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    before = digest(engine)
    with engine.begin() as connection:
        connection.execute(jobs.update().values(name="tampered"))
    assert digest(engine) != before
    Projector(log, engine, rebuild=True).catch_up()
    assert digest(engine) == before


def test_postgresql_and_sqlite_hold_the_same(tmp_path: Path, postgres_url: str) -> None:
    log = MemoryLog()
    everything(log)
    engine = open_database(postgres_url)
    Projector(log, engine, rebuild=True).catch_up()
    assert digest(engine) == digest(projected(log, database(tmp_path)))
    engine.dispose()


def test_a_second_projector_of_the_same_tables_is_told(tmp_path: Path) -> None:
    log = MemoryLog()
    script = Script(log)
    script.starts()
    engine = database(tmp_path)
    first, second = Projector(log, engine), Projector(log, engine)
    assert first.step() == 1
    with pytest.raises(Refused, match="another projector feeds these tables"):
        second.step()


def test_a_log_that_ends_before_the_tables_halts(tmp_path: Path) -> None:
    log = MemoryLog()
    everything(log)
    engine = projected(log, database(tmp_path))
    log._records["control", 0] = log._records["control", 0][:3]
    with pytest.raises(LogCut):
        Projector(log, engine)


def test_another_log_halts(tmp_path: Path) -> None:
    log, other = MemoryLog(), MemoryLog()
    Script(log).starts()
    everything(other)
    engine = projected(log, database(tmp_path))
    with pytest.raises(LogReplaced, match="computed from log"):
        Projector(other, engine)


def test_tables_of_another_version_are_refused_and_rebuilt(tmp_path: Path) -> None:
    log = MemoryLog()
    Script(log).starts()
    engine = projected(log, database(tmp_path))
    with engine.begin() as connection:
        connection.execute(positions.update().values(tables_version=TABLES_VERSION + 1))
    with pytest.raises(Refused, match="--rebuild"):
        Projector(log, engine)
    Projector(log, engine, rebuild=True).catch_up()


def test_readers_of_a_new_file_changed_its_journal_and_locked_each_other_out(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE something (a)")
    with snapshot(open_database(f"sqlite:///{path}")) as reading:
        assert reading.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"


def test_a_failed_transaction_is_tried_again_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = MemoryLog()
    everything(log)
    expected = digest(projected(log, database(tmp_path, "expected")))
    engine = database(tmp_path)
    projector = Projector(log, engine)
    fold = folding.fold
    folded = 0

    def failing(*arguments: object) -> None:
        nonlocal folded
        folded += 1
        if folded == 7:
            raise sqlalchemy.exc.OperationalError("", {}, Exception("disk full"))
        fold(*arguments)  # type: ignore[arg-type] # passed on as they came

    monkeypatch.setattr(module, "fold", failing)
    with pytest.raises(DatabaseUnavailable, match="disk full"):
        projector.step()
    while projector.step():
        pass
    assert digest(engine) == expected
