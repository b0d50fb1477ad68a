"""The same commands where the log is Kafka and the tables are PostgreSQL."""

import json
import uuid
from pathlib import Path

import pytest

from tests.cli.invoke import Gangline
from tests.cli.running import up

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("production")]


def test_a_job_runs_on_kafka_and_postgresql(
    home: Path, gangline: Gangline, kafka_bootstrap: str, postgres_url: str
) -> None:
    log = f"kafka://{kafka_bootstrap}/cli-{uuid.uuid4().hex[:8]}"
    with up(home, "--gpus", "1", "--log", log, "--sql", postgres_url):
        ran = gangline("submit", "--json", "--timeout", 30, "--", "echo", "hello")
        assert ran.code == 0, ran.err
        said = json.loads(ran.out)
        assert gangline("job", "wait", said["job_id"], "--timeout", 60).code == 0
        assert gangline("job", "logs", said["job_id"]).out == "hello\n"
        assert gangline("jobs", "--after", said["decided_index"]).code == 0
        (submitted,) = (
            record
            for line in gangline("events", "tail", "--from", said["index"], "--json").out.splitlines()
            if (record := json.loads(line))["index"] == said["index"]
        )
        assert submitted["kind"] == "SubmitJob"
        findings = {one["what"]: one for one in json.loads(gangline("doctor", "--json").out)}
        assert findings["tables"]["status"] == "ok"
        assert [what for what, one in findings.items() if one["status"] == "wrong"] == []
    assert "kafka://" in (home / "gangline.toml").read_text()
