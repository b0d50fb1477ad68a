"""A checkpoint exists once it is committed, and a binding names the committed ones, newest first."""

from gangline.events.control import CheckpointUploaded
from gangline.events.decisions import CheckpointCommitted, CheckpointRefused, GangBound, InputQuarantined
from gangline.events.types import CheckpointRef
from tests.scheduler.test_queueing import fails, small
from tests.scheduler.world import all_of, the


def test_an_uploaded_checkpoint_is_committed_and_resumed_from() -> None:
    world = small()
    job_id = world.runs()
    ref = world.checkpoint(job_id, 100)
    assert the(CheckpointCommitted, world.tick()).checkpoint == ref
    fails(world, job_id)
    assert the(GangBound, world.decided).resume == (ref,)


def test_a_binding_names_the_newest_first_and_as_many_as_policy_keeps() -> None:
    world = small()
    job_id = world.runs()
    refs = [world.checkpoint(job_id, step) for step in (1, 2, 3, 4)]
    world.tick()
    fails(world, job_id)
    assert world.attempt(job_id).bound.resume == (refs[3], refs[2], refs[1])


def test_an_attempt_may_commit_until_the_next_one_is_bound() -> None:
    world = small()
    job_id = world.runs(gpus=4)
    world.exits(job_id, 1)
    world.checkpoint(job_id, 7)
    decided = world.tick()
    assert the(GangBound, decided).resume == (the(CheckpointCommitted, decided).checkpoint,)


def test_a_late_checkpoint_of_an_earlier_attempt_is_refused() -> None:
    world = small()
    job_id = world.runs()
    fails(world, job_id)
    late = world.checkpoint(job_id, 100, attempt=1)
    refused = the(CheckpointRefused, world.tick())
    assert refused.checkpoint == late
    assert "attempt 1 is not the latest, which is 2" in refused.reason
    assert world.job(job_id).checkpoints == ()


def test_a_checkpoint_of_an_attempt_to_come_is_refused() -> None:
    world = small()
    job_id = world.runs()
    world.checkpoint(job_id, 100, attempt=2)
    the(CheckpointRefused, world.tick())


def test_a_repeated_report_changes_nothing() -> None:
    world = small()
    job_id = world.runs()
    world.checkpoint(job_id, 100)
    world.checkpoint(job_id, 100)
    the(CheckpointCommitted, world.tick())
    before = world.state.jobs
    world.checkpoint(job_id, 100)
    assert world.tick() == []
    assert world.state.jobs == before


def test_a_rejected_checkpoint_is_not_named_again() -> None:
    world = small()
    job_id = world.runs()
    old, new = world.checkpoint(job_id, 1), world.checkpoint(job_id, 2)
    world.tick()
    fails(world, job_id)
    world.rejects(job_id, new)
    fails(world, job_id)
    assert world.attempt(job_id).bound.resume == (old,)


def test_after_a_rejection_the_steps_made_good_again_count_as_progress() -> None:
    world = small()
    job_id = world.runs(retries=1)
    world.checkpoint(job_id, 1)
    rejected = world.checkpoint(job_id, 2)
    fails(world, job_id)
    world.rejects(job_id, rejected)
    world.checkpoint(job_id, 2)
    fails(world, job_id)
    assert world.job(job_id).failures_in_row == 1


def test_rejecting_what_is_not_committed_changes_nothing() -> None:
    world = small()
    job_id = world.runs()
    kept = world.checkpoint(job_id, 1)
    world.tick()
    world.rejects(job_id, CheckpointRef(step=1, uri="file:///elsewhere", manifest_sha256="0" * 64))
    world.tick()
    assert world.job(job_id).checkpoints == (kept,)


def test_a_checkpoint_of_an_ended_job_is_ignored() -> None:
    world = small()
    job_id = world.runs()
    ref = CheckpointRef(step=1, uri="file:///x", manifest_sha256="0" * 64)
    world.exits(job_id)
    world.tick()
    world.append(CheckpointUploaded(meta=world.meta(), job_id=job_id, attempt=1, checkpoint=ref, size_bytes=1))
    assert world.tick() == []


def test_a_checkpoint_that_cannot_be_is_quarantined() -> None:
    world = small()
    job_id = world.runs()
    world.checkpoint(job_id, -1)
    long = CheckpointRef(step=1, uri="x" * 5_000, manifest_sha256="0" * 64)
    world.append(CheckpointUploaded(meta=world.meta(), job_id=job_id, attempt=1, checkpoint=long, size_bytes=1))
    assert len(all_of(InputQuarantined, world.tick())) == 2
