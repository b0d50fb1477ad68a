"""Interactive jobs end when they are idle; attempts are warned before their time is over."""

from gangline.events.decisions import AttemptStopOrdered, GangBound, JobEnded, RuntimeWarned
from gangline.events.policy import Policy
from tests.scheduler.world import SECOND_US, World, all_of, rules_without, the


def cluster(policy: Policy | None = None) -> World:
    world = World(policy or Policy())
    world.node("n-1", 8)
    return world


# --- idle ---


def test_an_idle_interactive_job_is_stopped_and_has_succeeded() -> None:
    world = cluster()
    job_id = world.runs(gpu_milli=200, interactive=True)
    world.idles(job_id, 3600)
    assert the(AttemptStopOrdered, world.tick()).reason == "idle"
    world.exits(job_id, -15)
    ended = the(JobEnded, world.tick())
    assert (ended.outcome, ended.cause) == ("succeeded", "it was idle for 3600 s, and is interactive")


def test_the_binding_names_the_jobs_own_idle_time_out_else_the_policys() -> None:
    world = cluster(Policy(idle_timeout_us=60 * SECOND_US))
    for spec in ({"idle_timeout_us": 5 * SECOND_US}, {}):
        world.submit(interactive=True, **spec)
    world.submit()
    assert [one.idle_timeout_us for one in all_of(GangBound, world.tick())] == [5 * SECOND_US, 60 * SECOND_US, None]


def test_a_job_that_is_not_interactive_may_do_nothing() -> None:
    world = cluster()
    job_id = world.runs()
    world.idles(job_id, 3600)
    assert not all_of(AttemptStopOrdered, world.tick())


def test_a_policy_without_the_rule_lets_idle_jobs_be() -> None:
    world = cluster(Policy(rules=rules_without("interactive")))
    job_id = world.runs(interactive=True)
    assert world.attempt(job_id).bound.idle_timeout_us is None
    world.idles(job_id, 3600)
    assert not all_of(AttemptStopOrdered, world.tick())


def test_a_report_about_an_earlier_attempt_is_old_news() -> None:
    world = cluster()
    job_id = world.runs(interactive=True)
    world.exits(job_id, 1)
    world.settle()
    before = world.job(job_id).attempts
    world.idles(job_id, 1, attempt=before - 1)
    assert not all_of(AttemptStopOrdered, world.tick())


def test_a_job_that_failed_as_it_idled_is_stopped_once_and_for_the_failure() -> None:
    world = cluster()
    job_id = world.runs(interactive=True)
    world.idles(job_id, 3600)
    world.exits(job_id, 1, gone=False)
    assert the(AttemptStopOrdered, world.tick()).reason == "rank_failed"


# --- max_runtime ---


def test_an_attempt_is_warned_before_its_time_is_over_and_once() -> None:
    world = cluster()
    job_id = world.runs(max_runtime_us=3600 * SECOND_US)
    start_us = world.state.now_us
    assert not all_of(RuntimeWarned, world.passes(2995))
    warned = the(RuntimeWarned, world.passes(10))
    assert (warned.job_id, warned.attempt) == (job_id, 1)
    assert warned.ends_at_us == start_us + 3600 * SECOND_US
    assert warned.left_us == 600 * SECOND_US
    assert not all_of(RuntimeWarned, world.passes(500))
    assert the(AttemptStopOrdered, world.passes(100)).reason == "max_runtime"


def test_an_attempt_that_has_stopped_is_not_warned() -> None:
    world = cluster()
    job_id = world.runs(max_runtime_us=20 * SECOND_US)
    world.cancel(job_id)
    assert not all_of(RuntimeWarned, world.passes(30))
    assert not world.state.timers


def test_the_next_attempt_is_warned_in_its_own_time() -> None:
    world = cluster()
    job_id = world.runs(max_runtime_us=100 * SECOND_US)
    world.passes(40)
    world.exits(job_id, 1)
    world.settle()
    assert not all_of(RuntimeWarned, world.passes(45))
    assert the(RuntimeWarned, world.passes(10)).attempt == 2


def test_a_policy_may_do_without_warnings() -> None:
    world = cluster(Policy(warning_us=0))
    world.runs(max_runtime_us=20 * SECOND_US)
    assert not all_of(RuntimeWarned, world.passes(30))
