"""The mix is drawn as described, the same whatever the policy, and measured against sums made by hand."""

import statistics
from typing import cast

import pytest
from msgspec.structs import replace

from gangline.events.policy import Policy
from gangline.events.types import HOUR_US, JobSpec
from gangline.simulator import mix
from gangline.simulator.mix import DAY_US, Mix
from gangline.simulator.mix_measures import MixMeasures
from gangline.simulator.work import SECOND_US, Failure, Work, no_failures, uniform_nodes
from gangline.simulator.world import World

WEEK = Mix(seed=3, days=7)


@pytest.fixture(scope="module")
def week() -> list[Work]:
    return mix.works(WEEK)


def test_a_seed_always_gives_the_same_workload(week: list[Work]) -> None:
    assert mix.works(WEEK) == week
    assert mix.works(Mix(seed=4, days=7)) != week


@pytest.mark.parametrize("load", [1.0, 0.8])
def test_gangs_ask_for_60_percent_and_small_jobs_for_40_of_the_load(load: float) -> None:
    works = mix.works(Mix(seed=3, days=7, load=load))
    asked = {True: 0.0, False: 0.0}
    for work in works:
        asked[mix.is_gang(work.spec)] += work.work_us * mix.milli_of(work.spec)
    whole = 4_096_000 * 7 * DAY_US
    assert asked[True] / whole == pytest.approx(0.6 * load, rel=1e-4)
    assert asked[False] / whole == pytest.approx(0.4 * load, rel=1e-4)


def test_shares_of_sizes_fractions_teams_and_kinds_are_those_described(week: list[Work]) -> None:
    small = [work.spec for work in week if not mix.is_gang(work.spec)]

    def share(found: list[JobSpec], among: list[JobSpec]) -> float:
        return len(found) / len(among)

    ones = [spec for spec in small if spec.gpus == 1]
    fractions = [spec for spec in small if spec.gpu_milli < 1000]
    assert share(ones, small) == pytest.approx(0.4, abs=0.02)
    assert share(fractions, ones) == pytest.approx(0.1, abs=0.01)
    assert {spec.gpus for spec in fractions} == {1}
    assert 100 <= min(spec.gpu_milli for spec in fractions) <= max(spec.gpu_milli for spec in fractions) <= 500
    assert share([spec for spec in small if spec.preemptible], small) == pytest.approx(0.7, abs=0.01)
    assert share([spec for spec in small if spec.max_runtime_us], small) == pytest.approx(0.5, abs=0.01)
    assert share([spec for spec in small if mix.team_of(spec) == "team-1"], small) == pytest.approx(0.4, abs=0.02)
    assert len(small) == pytest.approx(221.9 * 168, rel=0.03)


def test_a_declared_maximum_is_1_2_to_4_times_the_truth(week: list[Work]) -> None:
    factors = [work.spec.max_runtime_us / work.work_us for work in week if work.spec.max_runtime_us]
    assert min(factors) + 1e-6 >= 1.2
    assert max(factors) <= 4.0
    assert statistics.mean(factors) == pytest.approx(2.6, abs=0.05)


def test_gangs_of_512_gpus_and_more_are_always_preemptible(week: list[Work]) -> None:
    large = [work.spec for work in week if work.spec.gpus >= 512]
    assert large
    assert all(spec.preemptible for spec in large)


def test_jobs_come_by_day_more_than_by_night(week: list[Work]) -> None:
    by_hour = [0] * 24
    for work in week:
        by_hour[work.submit_us // HOUR_US % 24] += 1
    assert by_hour[12] / by_hour[0] == pytest.approx(1.6 / 0.4, rel=0.2)


def test_a_save_interval_follows_from_the_time_between_failures() -> None:
    assert mix.save_interval_us(1024) == pytest.approx(657.3 * SECOND_US, rel=1e-3)
    assert mix.save_interval_us(1) == pytest.approx((2 * 30 * 3.6e6) ** 0.5 * SECOND_US, rel=1e-3)


def test_failures_depend_on_seed_job_and_attempt_alone(week: list[Work]) -> None:
    fail = mix.failures(WEEK)
    drawn = [fail(week[number], 1, 256, 32) for number in range(2_000)]
    assert drawn == [mix.failures(WEEK)(week[number], 1, 256, 32) for number in range(2_000)]
    assert drawn[0] != fail(week[0], 2, 256, 32)
    found = cast("list[Failure]", drawn)
    assert statistics.mean(one.after_us for one in found) == pytest.approx(8 * HOUR_US, rel=0.1)
    assert sum(one.node_down_us is not None for one in found) / 2_000 == pytest.approx(0.2, abs=0.03)


# --- measures ---


def job(number: int, at_us: int, gpus: int, work_us: int, **changes: object) -> Work:
    fields: dict[str, object] = {
        "number": number,
        "submit_us": at_us,
        "spec": JobSpec(name=f"job-{number}", queue="team-1/project-1", command=("train",), gpus=gpus),
        "work_us": work_us,
    } | changes
    return Work(**fields)  # type: ignore[arg-type] # the fields are those of Work


def measured(
    works: list[Work], nodes: int, days: int, fail: Failure | None = None, rules: tuple[str, ...] = ()
) -> tuple[World, MixMeasures]:
    cluster = uniform_nodes(nodes)
    measures = MixMeasures(cluster, days)

    def failures(_work: Work, attempt: int, _gpus: int, _shares: int) -> Failure | None:
        return fail if attempt == 1 else None

    world = World(
        nodes=cluster,
        policy=Policy(queues=mix.queues(), rules=rules),
        works=works,
        failures=failures if fail else no_failures,
        observers=[measures],
    )
    world.run(days * DAY_US)
    return world, measures


def test_allocation_is_of_what_is_asked_for_where_that_is_less_than_what_is_up() -> None:
    _, measures = measured([job(0, 3 * DAY_US, 4, DAY_US)], nodes=1, days=5)
    assert measures.figures().allocation_pct == pytest.approx(100.0, abs=0.01)


def test_a_job_that_waits_behind_another_counts_as_usable_gpus_left_free() -> None:
    works = [job(0, 3 * DAY_US, 6, DAY_US), job(1, 3 * DAY_US, 4, DAY_US)]
    _, measures = measured(works, nodes=1, days=5)
    # One day with 6 of 8 GPUs in use and 4 more asked for, then one with 4 asked for and used.
    figures = measures.figures()
    assert figures.allocation_pct == pytest.approx(100 * 10 / 12, abs=0.01)
    assert figures.idle_pct == 0.0
    assert figures.small_mean_s == pytest.approx(43_200, rel=1e-4)


def test_who_is_barred_by_the_quota_of_his_project_asks_for_nothing_and_could_not_use_what_is_free() -> None:
    fixed = JobSpec(name="fixed", queue="team-1/project-1", command=("train",), gpus=512, preemptible=False)
    works = [
        job(0, 3 * DAY_US, 512, DAY_US, spec=fixed),
        job(1, 3 * DAY_US + HOUR_US, 8, DAY_US, spec=replace(fixed, gpus=8)),
    ]
    world, measures = measured(works, nodes=512, days=5, rules=("quota",))
    assert world.jobs[1].waited_us == pytest.approx(DAY_US - HOUR_US, rel=1e-3)
    assert measures.figures().allocation_pct == pytest.approx(100.0, abs=0.01)
    assert measures.figures().idle_pct == pytest.approx(0.0, abs=0.01)


def test_saves_restarts_and_lost_work_are_not_useful() -> None:
    works = [
        job(0, 3 * DAY_US, 8, DAY_US, save_us=36 * SECOND_US, save_interval_us=HOUR_US, restart_us=HOUR_US, fails=True)
    ]
    fail = Failure(after_us=HOUR_US + 36 * SECOND_US + HOUR_US // 2, share=0)
    world, measures = measured(works, nodes=1, days=5, fail=fail)
    figures = measures.figures()
    assert world.jobs[0].outcome == "succeeded"
    used_h = 24 + 23 * 0.01 + 0.5 + 1
    assert figures.lost_pct == pytest.approx(100 * 0.5 / used_h, rel=1e-3)
    assert figures.restarting_pct == pytest.approx(100 * 1 / used_h, rel=1e-3)
    assert figures.saving_pct == pytest.approx(100 * 0.23 / used_h, rel=1e-3)
    assert figures.useful_pct == pytest.approx(100 * 24 / used_h, rel=1e-3)


def test_a_node_that_is_down_is_not_usable_and_its_job_goes_on_when_it_is_back() -> None:
    works = [job(0, 3 * DAY_US, 8, DAY_US, fails=True)]
    fail = Failure(after_us=HOUR_US, share=0, node_down_us=4 * HOUR_US)
    world, measures = measured(works, nodes=1, days=5, fail=fail)
    assert world.jobs[0].outcome == "succeeded"
    assert world.jobs[0].waited_us == pytest.approx(4 * HOUR_US, abs=2 * SECOND_US)
    assert measures.figures().allocation_pct == pytest.approx(100.0, abs=0.01)
    assert measures.figures().lost_pct == pytest.approx(100 / 25, rel=1e-3)


def test_only_the_days_after_the_first_three_are_measured() -> None:
    works = [job(0, 0, 6, 3 * DAY_US), job(1, 0, 4, HOUR_US)]
    _, measures = measured(works, nodes=1, days=4)
    assert measures.figures().allocation_pct == pytest.approx(100.0, abs=0.01)
