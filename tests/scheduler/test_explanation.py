"""Every rule that holds a job is named, with the nodes by what keeps it from them, and the nearest change."""

from typing import Any

import pytest
from msgspec.structs import replace

from gangline.events.control import (
    CordonNode,
    HoldJob,
    StoragePressureChanged,
)
from gangline.events.decisions import NodesReserved, RoomHeld
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import SECOND_US, Elastic, Share
from gangline.scheduler.explain import explain, explanation, why_not
from gangline.scheduler.explanation.values import Change, Explanation
from gangline.scheduler.explanation.words import span
from gangline.scheduler.journal import put_job, put_reserved, put_room
from tests.scheduler.world import World, rules_without

HOUR_S = 3600


def cluster(nodes: int = 2, **policy: Any) -> World:  # noqa: ANN401 - the fields of Policy
    it = World(Policy(**policy))
    for number in range(nodes):
        it.node(f"n-{number}")
    it.tick()
    return it


def of(it: World, job_id: str) -> tuple[Explanation, Change]:
    found = explanation(it.state, job_id)
    assert found.change is not None, found
    return found, found.change


def counts(found: Explanation) -> str:
    return ", ".join(one.text for one in found.nodes)


def test_it_counts_the_nodes_by_what_keeps_the_job_from_them() -> None:
    it = cluster(6, spare_nodes=2)
    it.node("a", gpu_type="A100")
    it.node("s", 4)
    it.command(CordonNode, node_id="n-1", reason="its fan is loud")
    it.runs(gpus=8, preemptible=False, gpu_types=("H100",))
    job_id = it.submit(gpus=8, gpu_types=("H100",), preemptible=False, held=True)
    it.loses("n-2")
    share = Share(
        node_id="n-3",
        address="x",
        gpus=(0,),
        gpu_milli=1000,
        cpu_milli=0,
        memory_bytes=0,
        first_rank=0,
    )
    held = RoomHeld(job_id="job-y", shares=(share,), reason="service", until_us=None)
    other = it.submit(gpus=40, preemptible=False)
    it.tick()
    it.state = put_job(it.state, replace(it.job(job_id), held=False))
    it.state = put_room(it.state, held)
    reserved = NodesReserved(
        job_id=other, node_ids=("n-4",), since_us=0, free_at_us=it.state.now_us + 2 * HOUR_S * SECOND_US
    )
    it.state = put_reserved(it.state, reserved)
    assert counts(explanation(it.state, job_id)) == (
        f"1 too full, 1 cordoned, 1 lost, 1 held for job-y, 1 reserved for {other} until 2 h from now, "
        "1 kept as a spare, 1 too small, 1 of another GPU type"
    )


def test_a_cordoned_node_is_not_the_freest_and_uncordoning_it_is_the_way_out() -> None:
    it = cluster(2)
    it.command(CordonNode, node_id="n-0", reason="")
    it.runs(gpus=8, preemptible=False)
    job_id = it.submit(gpus=8)
    it.tick()
    found, change = of(it, job_id)
    assert found.text == (
        "it waits, first of all that are pending: it needs 8 free GPUs on one node; n-1, the freest node, has 0; of 2 "
        "nodes: 1 too full, 1 cordoned"
    )
    assert "`gangline node uncordon n-0`" in change.text


def test_the_job_that_is_expected_to_end_first_is_what_changes_it_soonest() -> None:
    it = cluster(2)
    long = it.runs(gpus=8, preemptible=False, max_runtime_us=5 * HOUR_S * SECOND_US)
    short = it.runs(gpus=8, preemptible=False, max_runtime_us=2 * HOUR_S * SECOND_US)
    job_id = it.submit(gpus=4)
    it.tick()
    found, change = of(it, job_id)
    assert (found.rule, change.kind, change.subjects) == ("nodes", "end", (short,))
    assert change.text == f"when {short} ends, expected in 1 h 59 min"
    wide = it.submit(gpus=16)
    it.tick()
    assert of(it, wide)[1].subjects == (short, long)


def test_who_can_give_way_is_named_with_the_reason() -> None:
    it = cluster(1, min_runtime_us=0)
    victim = it.runs(gpus=8)
    it.passes(600)
    job_id = it.submit(gpus=8, priority=5)
    it.tick()
    _, change = of(it, job_id)
    assert (change.kind, change.subjects) == ("evict", (victim,))
    assert f"{victim} can give way to it (priority)" in change.text


TREE = (
    Queue(path="vision", quotas=(Quota(guarantee_milli=4_000, ceiling_milli=8_000),)),
    Queue(path="vision/cars"),
    Queue(path="vision/roads"),
    Queue(path="speech"),
)


def test_a_ceiling_is_named_with_its_queue_its_use_by_whom_and_how_far_that_has_to_fall() -> None:
    it = cluster(2, queues=TREE)
    first = it.runs(queue="vision/cars", gpus=6, max_runtime_us=HOUR_S * SECOND_US)
    job_id = it.submit(queue="vision/roads", gpus=4)
    it.tick()
    found, change = of(it, job_id)
    assert found.rule == "quota"
    assert f"queue 'vision' has a ceiling of 8 GPUs and uses 6 (by {first} 6); with the 4 of this job" in found.text
    assert change.text.startswith(
        f"the use of queue 'vision' has to fall by 2 GPUs, which it does when {first} ends, expected in 59 "
    )
    assert "`gangline queue set vision --ceiling N` raises its ceiling" in change.text


def test_a_job_that_may_not_borrow_is_told_of_the_guarantee() -> None:
    it = cluster(2, queues=TREE)
    it.runs(queue="vision/cars", gpus=2, preemptible=False)
    job_id = it.submit(queue="vision/cars", gpus=1, preemptible=False)
    it.tick()
    assert "queue 'vision/cars' has a guarantee of 2 GPUs, of which jobs that are not preemptible use 2" in explain(
        it.state, job_id
    )


def test_it_names_whose_turn_is_before() -> None:
    it = cluster(1)
    it.runs(gpus=8, preemptible=False)
    first, second = it.submit(gpus=8, priority=1), it.submit(gpus=8)
    it.tick()
    found = explanation(it.state, second)
    assert (found.before, found.before_count) == ((first,), 1)


def test_in_strict_order_it_waits_for_the_first() -> None:
    it = cluster(1, order="submission", head_blocks=True)
    it.runs(gpus=1)
    first, second = it.submit(gpus=8), it.submit(gpus=1)
    it.tick()
    found = explanation(it.state, second)
    assert found.rule == "order"
    assert f"nothing starts before {first}" in found.text
    assert found.change is not None
    assert found.change.text == f"when {first} starts"


def test_what_a_job_waits_for_is_named_with_how_it_stands() -> None:
    it = cluster(1)
    running = it.runs(gpus=1, max_runtime_us=HOUR_S * SECOND_US)
    job_id = it.submit(gpus=1, after=(running,))
    it.tick()
    found, change = of(it, job_id)
    assert (found.rule, found.text) == ("after", f"it starts when {running} (running) has succeeded")
    assert change.text == f"when {running} ends, expected in 59 min"


def test_holds_arrays_and_storage_are_named() -> None:
    it = cluster(2)
    held = it.submit(gpus=1, held=True)
    array = it.submit(gpus=1, array=2, array_parallel=1)
    it.append(StoragePressureChanged(meta=it.meta(), store="s3://big", pressed=True, used_ppm=950_000))
    heavy = it.submit(gpus=1, data_bytes=1 << 41)
    it.tick()
    found, change = of(it, held)
    assert (found.rule, change.text) == ("held", f"`gangline job release {held}`")
    found, change = of(it, f"{array}.1")
    assert "runs at most 1 of its jobs at a time" in found.text
    assert change.text.startswith(f"when one of {array}.0 ends")
    found, change = of(it, heavy)
    assert "storage is nearly full (s3://big)" in found.text
    assert change.kind == "wait"


def test_an_array_tells_how_its_jobs_stand_and_whom_to_ask() -> None:
    it = cluster(1)
    array = it.submit(gpus=4, array=4, preemptible=False)
    it.tick()
    found = explanation(it.state, array)
    assert (found.standing, found.rule) == ("running", "")
    assert found.text == (
        f"it is an array of 4, of which 0 have ended (0 without success), 2 run and 2 wait: `gangline why {array}.2` "
        "says what holds the first one that waits"
    )


def test_a_claimant_is_told_where_room_is_held_and_who_has_to_leave() -> None:
    it = cluster(1, min_runtime_us=0)
    victim = it.runs(gpus=8)
    it.passes(600)
    job_id = it.submit(gpus=8, priority=5)
    it.passes(60)
    found, change = of(it, job_id)
    assert (found.rule, change.kind) == ("claim", "end")
    assert found.text == f"room is held for it on n-0 (priority), and it starts there; it waits until {victim} has left"
    evicted = explanation(it.state, victim)
    assert evicted.standing == "stopping"
    assert f"is told to give way for {job_id} (priority: a job of the same queue has a higher priority)" in evicted.text
    it.gone(victim)
    it.tick()
    assert it.is_running(job_id)
    assert f"last in attempt 1 for {job_id} (priority: " in " ".join(explanation(it.state, victim).notes)


def test_an_elastic_gang_needs_its_least_size_and_tells_what_it_has() -> None:
    it = cluster(1)
    runs = it.runs(gpus=6, elastic=Elastic(min_gpus=2, max_gpus=6), preemptible=True)
    assert "it has 6 GPUs, and may have 2 to 6" in explanation(it.state, runs).notes
    job_id = it.submit(gpus=8, elastic=Elastic(min_gpus=4, max_gpus=8))
    it.tick()
    assert "it needs 4 free GPUs on one node; n-0, the freest node, has 2" in explain(it.state, job_id)


def test_a_running_job_tells_how_its_queue_stands_and_when_it_is_expected_to_end() -> None:
    it = cluster(2, queues=TREE)
    job_id = it.runs(queue="vision/cars", gpus=4, max_runtime_us=2 * HOUR_S * SECOND_US)
    notes = " ".join(explanation(it.state, job_id).notes)
    assert "by its max_runtime it is expected to end in 2 h" in notes
    assert "for queue 'vision/cars', which uses 4 of 2 guaranteed: borrowing" in notes


def test_why_not_gives_every_reason_of_one_node() -> None:
    it = cluster(2, rules=rules_without("quota"))
    busy = it.runs(gpus=6, preemptible=False)
    job_id = it.submit(gpus=4, held=True)
    it.command(CordonNode, node_id="n-0", reason="its fan is loud")
    it.tick()
    assert [reason.kind for reason in why_not(it.state, job_id, "n-0")] == ["cordoned", "too_full", "held"]
    texts = [reason.text for reason in why_not(it.state, job_id, "n-0")]
    assert "(its fan is loud): `gangline node uncordon n-0`" in texts[0]
    assert texts[1] == f"2 of its 8 GPUs are free, and the job asks for 4 (running there: {busy})"
    assert [reason.kind for reason in why_not(it.state, job_id, "n-1")] == ["held"]


def test_why_not_gives_nothing_for_a_node_that_could_hold_it() -> None:
    it = cluster(2)
    first = it.submit(gpus=8)
    it.command(HoldJob, job_id=first, reason="")
    second = it.submit(gpus=4)
    it.tick()
    assert it.is_running(second)
    other = "n-1" if it.nodes_of(second) == ["n-0"] else "n-0"
    assert why_not(it.state, second, other) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (60, "1 min"), (3_660, "1 h 1 min"), (7_200, "2 h"), (90_000, "1 d 1 h")],
)
def test_spans_of_time_have_two_units_at_most(seconds: int, text: str) -> None:
    assert span(seconds * SECOND_US) == text
