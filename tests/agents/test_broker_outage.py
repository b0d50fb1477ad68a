"""A real broker is stopped under running jobs; nothing of what happens meanwhile is lost."""

from pathlib import Path

import pytest

from deploy.local_kafka import LocalKafka
from gangline.events.control import NodeRegistered, RanksExited, RanksStarted
from tests import services
from tests.agents.node import Node, gang, wait_for

UNTIL_GO = "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)"


@pytest.mark.slow
def test_jobs_run_on_and_end_without_the_broker_and_are_reported_when_it_is_back(tmp_path: Path) -> None:
    services.require_java()
    with LocalKafka(tmp_path / "kafka") as kafka, Node(tmp_path, log_url=f"kafka://{kafka.bootstrap}/outage") as node:
        node.start_agent()
        node.wait_fact(NodeRegistered)
        seen, unseen = (gang("python", "-c", UNTIL_GO, job_id=job) for job in ("job-seen", "job-unseen"))
        node.decide(seen, unseen)
        for bound in (seen, unseen):
            node.wait_output(bound, "up")
            node.wait_fact(RanksStarted, bound)
        kafka.kill()
        (node.folder_of(seen).work / "go").touch()
        wait_for(lambda: not node.folder_of(seen).shim_lives(), "end of the first job")
        node.kill_agent()
        node.start_agent()
        wait_for(lambda: "waiting for the log" in node.stderr.read_text(), "agent that waits", timeout_s=40)
        (node.folder_of(unseen).work / "go").touch()
        wait_for(lambda: not node.folder_of(unseen).shim_lives(), "end of the second job")
        kafka.start()
        for bound in (seen, unseen):
            assert node.wait_gone(bound, timeout_s=60) == {0: 0}
        node.wait_fact(NodeRegistered, count=2)  # which may come after what was missed
        assert len(node.facts(NodeRegistered)) == 2
        assert len(node.stderr.read_text().splitlines()) < 10, "an outage fills the agent's log"
        assert all(event.gone or event.exits for event in node.facts(RanksExited))
