"""A claim is what a team may have within its guarantee and others have borrowed; its wait ends with the binding."""

from gangline.events.types import JobSpec
from gangline.simulator.claims import Claims, Met
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import Work

GUARANTEE = 100
PROJECT = 50


def job(number: int = 0) -> VirtualJob:
    spec = JobSpec(name=f"job-{number}", queue="default", command=("train",), gpus=1)
    return VirtualJob(Work(number=number, submit_us=0, spec=spec, work_us=1))


def fixed(number: int, project: str) -> VirtualJob:
    """Return a job that is not preemptible."""
    spec = JobSpec(name=f"job-{number}", queue=project, command=("train",), gpus=1, preemptible=False)
    return VirtualJob(Work(number=number, submit_us=0, spec=spec, work_us=1))


def claims(*, borrowed: int = 50, preemptible: int = 150) -> Claims:
    """Return two teams, of which b uses its guarantee and has borrowed."""
    found = Claims([("a", GUARANTEE), ("b", GUARANTEE)], PROJECT)
    found.teams["b"].use = GUARANTEE + borrowed
    found.teams["b"].preemptible_use = preemptible
    return found


def test_the_wait_runs_from_becoming_a_claim_to_the_binding() -> None:
    found, waiting = claims(borrowed=0), job()
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    found.teams["b"].use += 30
    found.refresh(20)
    found.bound("a", waiting, 30, 50)
    assert found.met == [Met(30, 20, 30, met=True)]


def test_what_others_did_not_borrow_is_no_claim() -> None:
    found, waiting = claims(borrowed=20), job()
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    found.bound("a", waiting, 30, 50)
    assert found.met == []


def test_only_preemptible_use_counts_as_borrowed() -> None:
    found, waiting = claims(borrowed=50, preemptible=20), job()
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    assert found.still_open(50) == []


def test_a_team_claims_no_more_than_its_guarantee() -> None:
    found, waiting = claims(), job()
    found.teams["a"].use = 80
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    assert found.still_open(50) == []


def test_a_claim_is_none_any_more_once_its_team_uses_the_guarantee_otherwise() -> None:
    found, waiting = claims(), job()
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    found.teams["a"].use = 80
    found.refresh(20)
    found.teams["a"].use = 0
    found.refresh(30)
    found.bound("a", waiting, 30, 50)
    assert found.met == [Met(30, 30, 20, met=True)]


def test_that_others_give_back_what_they_borrowed_does_not_end_a_claim() -> None:
    found, waiting = claims(), job()
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    found.teams["b"].use = GUARANTEE
    found.refresh(20)
    assert found.still_open(60) == [Met(30, 10, 50, met=False)]


def test_a_team_borrows_nothing_from_itself() -> None:
    found, waiting = claims(), job()
    found.teams["b"].waits(waiting, 1)
    found.refresh(10)
    assert found.still_open(50) == []


def test_what_the_quota_of_its_project_bars_is_no_claim() -> None:
    found, waiting, other = claims(), fixed(0, "a/one"), fixed(1, "a/two")
    found.teams["a"].uses(fixed(2, "a/one"), 30)
    found.teams["a"].waits(waiting, 30)
    found.teams["a"].waits(other, 30)
    found.refresh(10)
    assert found.still_open(50) == [Met(30, 10, 40, met=False)]
    found.bound("a", other, 30, 60)
    assert [one.since_us for one in found.met] == [10]


def test_a_claim_begins_once_quota_bars_the_job_no_longer_and_ends_when_it_does_again() -> None:
    found, waiting = claims(), fixed(0, "a/one")
    found.teams["a"].uses(fixed(1, "a/one"), 30)
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    found.teams["a"].uses(fixed(1, "a/one"), -30)
    found.refresh(20)
    assert found.still_open(50) == [Met(30, 20, 30, met=False)]
    found.teams["a"].uses(fixed(2, "a/one"), 30)
    found.refresh(30)
    assert found.still_open(50) == []


def test_no_quota_of_its_project_bars_a_preemptible_job() -> None:
    found, waiting = claims(), job()
    found.teams["a"].uses(fixed(1, "default"), 50)
    found.teams["a"].waits(waiting, 30)
    found.refresh(10)
    assert found.still_open(50) == [Met(30, 10, 40, met=False)]
