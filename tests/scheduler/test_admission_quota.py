"""What no quota would ever allow is refused with the value, the limit and the way out; what some day fits is not."""

from typing import Any

import pytest

from gangline.events.decisions import JobAdmitted, JobRejected
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import Elastic, Role
from tests.scheduler.world import World, rules_without, the

QUEUES = (
    Queue(path="vision", quotas=(Quota(guarantee_milli=8_000, ceiling_milli=16_000),)),
    Queue(path="vision/cars", quotas=(Quota(guarantee_milli=4_000),)),
    Queue(path="vision/roads", quotas=(Quota(guarantee_milli=4_000, ceiling_milli=6_000),)),
    Queue(path="speech", quotas=(Quota(gpu_type="A100", ceiling_milli=4_000, guarantee_milli=0),)),
)


def world(**policy: Any) -> World:  # noqa: ANN401 - the fields of Policy
    """Three H100 nodes and one A100 node, of 8 GPUs each."""
    it = World(Policy(queues=QUEUES, **policy))
    for number in range(3):
        it.node(f"n-{number}")
    it.node("n-3", gpu_type="A100")
    it.tick()
    return it


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "more than the ceiling of its queue": (
        {"queue": "vision/roads", "gpus": 7},
        "gpus is 7, but queue 'vision/roads' has a ceiling of 6 GPUs: ask for at most 6, use another queue, or have it",
    ),
    "more than the ceiling of the queue above": (
        {"queue": "vision/cars", "gpus": 24},
        "queue 'vision' has a ceiling of 16 GPUs: ask",
    ),
    "more with its roles than the ceiling": (
        {"queue": "vision/roads", "gpus": 4, "roles": (Role(name="judge", ranks=5, gpu_milli=500),)},
        "gpus is 6.5, those of its roles included, but queue 'vision/roads' has a ceiling of 6",
    ),
    "more than the guarantee for who may not borrow": (
        {"queue": "vision/cars", "gpus": 5, "preemptible": False},
        "may not borrow, and queue 'vision/cars' has a guarantee of 4 GPUs: let the job be preemptible, ask for",
    ),
    "more than the ceiling for the only type that it accepts": (
        {"queue": "speech", "gpus": 8, "gpu_types": ("A100",)},
        "queue 'speech' has a ceiling of 4 GPUs of A100",
    ),
    "more than the ceiling of one type and than there is of the other": (
        {"queue": "vision/roads", "gpus": 12, "gpu_types": ("A100", "H100")},
        "queue 'vision/roads' has a ceiling of 6 GPUs",
    ),
    "an elastic gang whose least size is above the ceiling": (
        {"queue": "vision/roads", "gpus": 8, "elastic": Elastic(min_gpus=8, max_gpus=16)},
        "gpus is 8, but queue 'vision/roads' has a ceiling of 6",
    ),
    "a queue with queues below it": (
        {"queue": "vision"},
        "has queues below it, and only the lowest ones take jobs: name one of vision/cars, vision/roads",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_refuses(name: str) -> None:
    changes, text = REFUSED[name]
    it = world()
    it.submit(**changes)
    assert text in the(JobRejected, it.tick()).message


ADMITTED: dict[str, dict[str, Any]] = {
    "as much as the ceiling": {"queue": "vision/roads", "gpus": 6},
    "as much as the guarantee without borrowing": {"queue": "vision/cars", "gpus": 4, "preemptible": False},
    "more than the guarantee by borrowing": {"queue": "vision/cars", "gpus": 16},
    "no GPU in a queue that may have none": {"queue": "speech", "gpus": 0},
    "one of two types, of which the other has a lower ceiling": {"queue": "speech", "gpus": 8},
    "an elastic gang that fits at its least size": {
        "queue": "vision/roads",
        "gpus": 8,
        "elastic": Elastic(min_gpus=4, max_gpus=8),
    },
}


@pytest.mark.parametrize("name", ADMITTED)
def test_it_admits(name: str) -> None:
    it = world()
    it.submit(**ADMITTED[name])
    the(JobAdmitted, it.tick())


def test_the_use_of_others_is_no_reason_to_refuse() -> None:
    it = world()
    it.runs(queue="vision/roads", gpus=6, gpu_types=("H100",))
    waits = it.submit(queue="vision/roads", gpus=6, gpu_types=("H100",))
    the(JobAdmitted, it.tick())
    assert not it.is_running(waits)


def test_where_the_tree_limits_nothing_nothing_is_refused_for_it() -> None:
    it = world(rules=rules_without("quota"))
    it.submit(queue="vision/roads", gpus=16, preemptible=False)
    the(JobAdmitted, it.tick())


def test_before_any_node_has_registered_nobody_knows_the_guarantees() -> None:
    it = World(Policy(queues=QUEUES))
    it.submit(queue="vision/cars", gpus=100, preemptible=False)
    the(JobAdmitted, it.tick())
