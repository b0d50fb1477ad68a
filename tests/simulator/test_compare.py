"""Policies side by side see the same workload, and their report is one page with every picture in it."""

import re
from pathlib import Path

import pytest

from gangline.events.policy import Policy
from gangline.simulator import compare, mix, philly, plans, report
from gangline.simulator.compare import Result
from gangline.simulator.plan import NamedPolicy, Plan

SLICE = Path(__file__).parent / "fixtures/philly_slice.csv"
POLICIES = (
    NamedPolicy(name="strict", policy=Policy(order="submission", head_blocks=True, rules=())),
    NamedPolicy(name="<default>", policy=Policy()),
)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plans.of_philly(SLICE, plans.Cluster(nodes=8, pods=2), divide=9, teams=True)


@pytest.fixture(scope="module")
def results(plan: Plan) -> list[Result]:
    return [compare.run(plan, named) for named in POLICIES]


def test_all_jobs_end_well_under_both(results: list[Result]) -> None:
    assert [result.summary.succeeded for result in results] == [400, 400]


def test_skipping_ahead_and_making_room_fill_the_cluster_better_than_a_strict_order(results: list[Result]) -> None:
    strict, default = (result.summary for result in results)
    assert default.allocation_pct > strict.allocation_pct + 2
    assert strict.preemptions_per_job == 0


def test_the_gpu_time_of_the_jobs_is_the_allocation_over_time(plan: Plan, results: list[Result]) -> None:
    asked = sum(work.work_us * work.spec.gpus * 1000 for work in plan.works)
    recorder = results[0].recorder
    until_us = recorder.until_us
    allocated = sum(series.mean(until_us) * until_us for series in recorder.allocated.values())
    assert allocated == pytest.approx(asked, rel=1e-3)
    assert recorder.spent["working"] == asked


def test_teams_are_guaranteed_their_share_of_gpu_time(plan: Plan, results: list[Result]) -> None:
    assert set(results[0].guarantees) == {queue.path for queue in plan.queues}
    assert 56_000 <= sum(results[0].guarantees.values()) <= 64_000


def test_waits_by_size_cover_every_job(results: list[Result]) -> None:
    assert [sum(row.jobs for row in result.by_size) for result in results] == [400, 400]


def test_the_report_is_one_page_with_five_pictures_the_table_and_the_source(plan: Plan, results: list[Result]) -> None:
    page = report.page(plan.title, results, attribution=plan.attribution)
    assert page.count("<svg") == 5
    assert page.count("&lt;default&gt;") >= 1
    assert "<default>" not in page
    assert philly.ATTRIBUTION.replace("'", "&#x27;") in page
    assert not re.findall(r"(?:src|href)=[\"']https?://", page), "the page has to stand by itself"


def test_the_same_results_make_the_same_page(plan: Plan, results: list[Result]) -> None:
    assert report.page(plan.title, results) == report.page(plan.title, results)


@pytest.mark.slow
def test_the_mix_stops_after_its_days() -> None:
    small = mix.Mix(seed=1, days=1, load=0.05)
    result = compare.run(plans.of_mix(small), POLICIES[1])
    assert result.summary.days == 1.0
    assert result.summary.jobs > 5_000


def test_a_plan_can_be_cut_after_some_days() -> None:
    cut = plans.first_days(plans.of_philly(SLICE, plans.Cluster(nodes=8), divide=1, teams=False), 1)
    assert 0 < len(cut.works) <= 400
    assert cut.until_us == mix.DAY_US
