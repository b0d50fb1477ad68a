"""What would happen to a job if it were submitted now comes out as it does when it is submitted in earnest."""

from typing import Any

import pytest

from gangline.events.control import CordonNode
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import HOUR_US, SECOND_US
from gangline.scheduler.canonical import to_bytes
from gangline.simulator.forecast import HORIZON_US, Forecast, forecast
from tests.scheduler.world import World

DAY_US = 24 * HOUR_US


def cluster(nodes: int = 1, **policy: Any) -> World:  # noqa: ANN401 - the fields of Policy
    it = World(Policy(**policy))
    for number in range(nodes):
        it.node(f"n-{number}")
    it.tick()
    return it


def of(it: World, horizon_us: int = HORIZON_US, **changes: Any) -> Forecast:  # noqa: ANN401 - the fields of JobSpec
    before = to_bytes(it.state)
    found = forecast(it.state, it.spec(**changes), horizon_us=horizon_us)
    assert to_bytes(it.state) == before, "a forecast changed what it began with"
    return found


def test_what_fits_starts_at_once_on_the_node_that_it_gets_in_earnest() -> None:
    it = cluster(2)
    it.runs(gpus=4)
    found = of(it, gpus=4)
    assert (found.outcome, found.start_in_us, found.evicted) == ("starts", 0, ())
    job_id = it.runs(gpus=4)
    assert list(found.nodes) == it.nodes_of(job_id)


def test_what_could_never_start_is_refused_with_the_same_words() -> None:
    it = cluster(1)
    found = of(it, gpus=9)
    it.submit(gpus=9)
    (answer,) = it.tick()
    assert (found.outcome, found.message) == ("refused", getattr(answer, "message", None))


def test_it_waits_for_the_end_of_what_runs_by_its_max_runtime() -> None:
    it = cluster(1)
    runs = it.runs(gpus=8, preemptible=False, max_runtime_us=2 * HOUR_US)
    found = of(it, gpus=8)
    assert (found.outcome, found.ended_before, found.nodes) == ("waits", (runs,), ("n-0",))
    assert found.start_in_us is not None
    assert abs(found.start_in_us - 2 * HOUR_US) < 60 * SECOND_US
    assert found.waits is not None
    assert found.waits.rule == "nodes"
    assert "1 job by max_runtime, which may be longer than the truth" in found.rests


def test_who_is_before_it_in_the_line_starts_before_it() -> None:
    it = cluster(1)
    it.runs(gpus=8, preemptible=False, max_runtime_us=HOUR_US)
    it.submit(gpus=8, priority=1, max_runtime_us=3 * HOUR_US)
    it.tick()
    found = of(it, gpus=8)
    assert found.start_in_us is not None
    assert found.start_in_us > 4 * HOUR_US - 60 * SECOND_US


def test_it_evicts_whom_it_evicts_in_earnest_and_starts_on_its_nodes() -> None:
    it = cluster(1, min_runtime_us=0)
    victim = it.runs(gpus=8, name="small fry")
    it.passes(600)
    found = of(it, gpus=8, priority=5)
    assert found.outcome == "evicts"
    (evicted,) = found.evicted
    assert (evicted.job_id, evicted.name, evicted.reason) == (victim, "small fry", "priority")
    assert found.start_in_us is not None
    assert found.start_in_us < 120 * SECOND_US
    it.submit(gpus=8, priority=5)
    it.passes(60)
    assert it.attempt(victim).preempted is not None


def test_a_queue_at_its_ceiling_waits_until_its_use_falls() -> None:
    queues = (Queue(path="a", quotas=(Quota(ceiling_milli=8_000),)), Queue(path="b"))
    it = cluster(2, queues=queues)
    it.runs(queue="a", gpus=8, preemptible=False, max_runtime_us=HOUR_US)
    found = of(it, queue="a", gpus=2)
    assert found.waits is not None
    assert (found.outcome, found.waits.rule) == ("waits", "quota")
    assert found.start_in_us is not None
    assert abs(found.start_in_us - HOUR_US) < 60 * SECOND_US


def test_what_does_not_start_within_the_horizon_is_said_to_be_so_with_the_reason() -> None:
    it = cluster(1)
    it.command(CordonNode, node_id="n-0", reason="")
    it.tick()
    found = of(it, HOUR_US, gpus=8)
    assert (found.outcome, found.start_in_us, found.nodes) == ("never", None, ())
    assert found.waits is not None
    assert "1 cordoned" in found.waits.text
    assert found.waits.change is not None
    assert "`gangline node uncordon n-0`" in found.waits.change.text


@pytest.mark.parametrize(("changes", "outcome"), [({"held": True}, "never"), ({"array": 3}, "starts")])
def test_held_jobs_do_not_start_and_of_an_array_the_first_is_followed(changes: dict[str, Any], outcome: str) -> None:
    assert of(cluster(1), gpus=1, **changes).outcome == outcome


def test_a_job_of_which_nothing_is_known_was_taken_to_end_at_once_where_it_had_just_begun() -> None:
    it = cluster(1)
    it.runs(gpus=8, preemptible=False)
    found = of(it, gpus=8)
    assert found.start_in_us is not None
    assert found.start_in_us >= HOUR_US


def test_it_rests_on_a_guess_where_nothing_is_known() -> None:
    it = cluster(1)
    it.runs(gpus=8, preemptible=False)
    it.passes(600)
    found = of(it, gpus=8, preemptible=False)
    assert any("of which nothing is known" in text for text in found.rests)
