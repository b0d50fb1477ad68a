"""What decisions mean in rows, one by one."""

import json
from pathlib import Path

from msgspec.structs import replace

from gangline.events.memory import MemoryLog
from gangline.projections.tables import timeline
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
