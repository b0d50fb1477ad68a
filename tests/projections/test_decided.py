"""What decisions mean in rows, one by one."""

import json
from pathlib import Path

from msgspec.structs import replace

from gangline.events.decisions import JobRequeued
from gangline.events.memory import MemoryLog
from gangline.events.types import Elastic
from gangline.projections.tables import jobs, timeline
from tests.histories import Script, gang_bound
from tests.projections.test_projector import database, projected, rows


def test_a_second_role_on_a_node_hid_the_gpus_of_the_first_from_the_timeline(tmp_path: Path) -> None:
    log = MemoryLog()
    script = Script(log)
    script.starts()
    script.node()
    job = script.admits()
    bound = gang_bound(job)
    learners = bound.shares[0]
    actors = replace(learners, gpus=(), first_rank=1, role="actor", rank_count=2)
    script.decides(replace(bound, shares=(learners, actors), world_size=3))
    (told,) = [row for row in rows(projected(log, database(tmp_path)), timeline) if row["kind"] == "bound"]
    assert json.loads(str(told["detail"]))["placement"] == {learners.node_id: [0]}


def test_a_job_has_its_present_size_while_it_runs_and_its_bounds_all_the_time(tmp_path: Path) -> None:
    log = MemoryLog()
    script = Script(log)
    script.starts()
    for number in range(3):
        script.node(f"node-{number}")
    job = script.admits(elastic=Elastic(min_gpus=1, max_gpus=3))

    def sizes() -> tuple[object, ...]:
        (row,) = rows(projected(log, database(tmp_path, str(script.index))), jobs)
        return row["gpus_min"], row["gpus_max"], row["gpus_now"]

    assert sizes() == (1, 3, None)
    script.binds(job, nodes=("node-0", "node-1", "node-2"))
    assert sizes() == (1, 3, 3)
    script.decides(JobRequeued(job_id=job, attempt=1, failures_in_row=0, cause="it grows"))
    assert sizes() == (1, 3, None)
