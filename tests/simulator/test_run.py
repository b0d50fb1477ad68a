"""An attempt works, saves, fails and gives way at the microsecond that follows from its work."""

from gangline.events.decisions import GangBound
from gangline.events.types import CheckpointRef, JobSpec, Share
from gangline.simulator.run import Next, Run, Segment, segments
from gangline.simulator.work import Failure, Work


def work(**changes: object) -> Work:
    spec = JobSpec(name="job", queue="default", command=("train",), gpus=8)
    fields: dict[str, object] = {"number": 0, "submit_us": 0, "spec": spec, "work_us": 1_000} | changes
    return Work(**fields)  # type: ignore[arg-type] # the fields are those of Work


def bound(attempt: int = 1, resumed_us: int | None = None, gpus: int = 8) -> GangBound:
    share = Share(
        node_id="node-0",
        address="node-0",
        gpus=tuple(range(gpus)),
        gpu_milli=1000,
        cpu_milli=0,
        memory_bytes=0,
        first_rank=0,
    )
    resume = () if resumed_us is None else (CheckpointRef(step=resumed_us, uri="", manifest_sha256=""),)
    return GangBound(
        job_id="job-0",
        attempt=attempt,
        shares=(share,),
        world_size=gpus,
        master_address="node-0",
        master_port=20_000,
        resume=resume,
        name="job",
        command=("train",),
        env={},
        grace_us=0,
        code=None,
        checkpoints=None,
    )


def test_work_without_saves_finishes_after_its_time() -> None:
    assert Run(work(), bound(), 50, None).next() == Next(1_050, "finished", 1_000)


def test_a_save_pauses_work_and_counts_at_its_end() -> None:
    run = Run(work(save_interval_us=300, save_us=10), bound(), 0, None)
    steps = [run.next()]
    while steps[-1].step == "saved":
        run.save(steps[-1])
        steps.append(run.next())
    assert steps == [
        Next(310, "saved", 300),
        Next(620, "saved", 600),
        Next(930, "saved", 900),
        Next(1_030, "finished", 1_000),
    ]


def test_nothing_is_saved_just_when_the_work_ends() -> None:
    assert Run(work(save_interval_us=1_000, save_us=10), bound(), 0, None).next() == Next(1_000, "finished", 1_000)


def test_only_a_second_attempt_pays_for_a_restart_and_works_on_from_its_checkpoint() -> None:
    assert Run(work(restart_us=60), bound(), 0, None).next().at_us == 1_000
    assert Run(work(restart_us=60), bound(attempt=2, resumed_us=700), 0, None).next().at_us == 360


def test_a_failure_loses_what_was_not_saved() -> None:
    run = Run(work(save_interval_us=300, save_us=10), bound(), 0, Failure(after_us=500, share=0))
    saved = run.next()
    assert segments(run, saved, 0) == [Segment("working", 0, 300), Segment("saving", 300, 310)]
    run.save(saved)
    failed = run.next()
    assert failed == Next(500, "failed", 300)
    assert segments(run, failed, 310) == [Segment("lost", 310, 500)]


def test_giving_way_saves_what_is_done() -> None:
    run = Run(work(save_us=30), bound(), 0, None)
    step = run.give_way(400, 120)
    assert step == Next(430, "yielded", 400)
    assert segments(run, step, 0) == [Segment("working", 0, 400), Segment("saving", 400, 430)]


def test_giving_way_during_a_save_waits_for_its_end_only() -> None:
    run = Run(work(save_interval_us=300, save_us=30), bound(), 0, None)
    assert run.give_way(310, 120) == Next(330, "yielded", 300)


def test_giving_way_during_a_restart_loses_nothing() -> None:
    run = Run(work(save_us=30, restart_us=100), bound(attempt=2, resumed_us=700), 0, None)
    step = run.give_way(50, 120)
    assert step == Next(80, "yielded", 700)
    assert segments(run, step, 0) == [Segment("restarting", 0, 80)]


def test_who_needs_longer_than_the_grace_is_killed_without_a_save() -> None:
    assert Run(work(save_us=30), bound(), 0, None).give_way(400, 20) == Next(420, "killed", 0)


def test_who_fails_while_saving_has_not_saved() -> None:
    run = Run(work(save_us=30), bound(), 0, Failure(after_us=410, share=0))
    assert run.give_way(400, 120) == Next(410, "failed", 0)


def test_half_the_gpus_need_twice_the_time() -> None:
    run = Run(work(save_interval_us=300, save_us=10), bound(gpus=4), 0, None)
    assert run.next() == Next(310, "saved", 150)
    assert Run(work(), bound(gpus=4), 0, None).next() == Next(2_000, "finished", 1_000)
