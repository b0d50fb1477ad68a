"""What happens in a scenario beside submissions: commands of users and operators, and facts that befall the cluster."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from gangline.events.control import (
    ActivatePolicy,
    CancelJob,
    CheckNode,
    CheckpointRejected,
    CheckpointUploadStarted,
    CordonNode,
    DrainNode,
    HoldJob,
    JobIdled,
    NodeFaulted,
    NodeLost,
    NodeRecovered,
    RankSlow,
    ReleaseJob,
    RemoveQueue,
    ReprioritiseJob,
    RetryJob,
    SetQueue,
    StoragePressureChanged,
    UncordonNode,
)
from gangline.simulator.run import Run
from gangline.simulator.scenario import LONG_US, Deed, Happening, ScenarioError
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US

if TYPE_CHECKING:
    from gangline.simulator.scenario_run import ScenarioWorld


def do(world: "ScenarioWorld", happening: Happening) -> bytes | None:
    """Let it happen now; return the id of the command, if it is one."""
    if happening.deed in _COMMANDS:
        return _COMMANDS[happening.deed](world, happening)
    _FACTS[happening.deed](world, happening)
    return None


def _job_id(world: "ScenarioWorld", one: Happening) -> str:
    """Return the id of the job that is named; the name itself of one that nobody submitted, as a user may write it."""
    job = world.named.get(one.job)
    return job.job_id or one.job if job is not None else one.job


_Command = Callable[["ScenarioWorld", Happening], bytes]
_COMMANDS: Mapping[Deed, _Command] = MappingProxyType(
    {
        "cancel": lambda world, one: world.command(CancelJob, job_id=_job_id(world, one), reason=one.reason),
        "hold": lambda world, one: world.command(HoldJob, job_id=_job_id(world, one), reason=one.reason),
        "release": lambda world, one: world.command(ReleaseJob, job_id=_job_id(world, one)),
        "retry": lambda world, one: world.command(RetryJob, job_id=_job_id(world, one)),
        "reprioritise": lambda world, one: world.command(
            ReprioritiseJob, job_id=_job_id(world, one), priority=one.priority
        ),
        "cordon": lambda world, one: world.command(CordonNode, node_id=one.node_id, reason=one.reason),
        "uncordon": lambda world, one: world.command(UncordonNode, node_id=one.node_id),
        "drain": lambda world, one: world.command(DrainNode, node_id=one.node_id, reason=one.reason),
        "check": lambda world, one: world.command(CheckNode, node_id=one.node_id),
        "set_queue": lambda world, one: world.command(SetQueue, queue=one.queue),
        "remove_queue": lambda world, one: world.command(RemoveQueue, path=one.queue_path),
        "activate_policy": lambda world, one: world.command(ActivatePolicy, policy=one.policy),
    }
)


def _running(world: "ScenarioWorld", one: Happening) -> tuple[VirtualJob, Run]:
    job = world.named.get(one.job)
    if job is None or job.run is None:
        at_s = one.at_us // SECOND_US
        raise ScenarioError((*one.path, "job"), f"{one.job!r} does not run {at_s} s after the beginning")
    return job, job.run


def _boot(world: "ScenarioWorld", node_id: str) -> str:
    return world.driver.state.nodes[node_id].boot_id


def _exit(world: "ScenarioWorld", one: Happening) -> None:
    job, run = _running(world, one)
    if one.rank is None:
        world.agents.exit_all(job, one.code)
    elif any(one.rank in share.ranks for share in run.bound.shares):
        world.agents.exit_rank(job, one.rank, one.code)
    else:
        raise ScenarioError((*one.path, "rank"), f"{one.job!r} has no rank {one.rank}")


def _checkpoint(world: "ScenarioWorld", one: Happening) -> None:
    job = world.named.get(one.job)
    if job is not None and job.job_id in world.uploading:
        world.agents.uploads(job, *world.uploading.pop(job.job_id))
        return
    world.agents.save_now(_running(world, one)[0])


def _start_upload(world: "ScenarioWorld", one: Happening) -> None:
    job, run = _running(world, one)
    done_us = run.progress_us(world.timeline.now_us)
    world.uploading[job.job_id] = (run.bound.attempt, done_us)
    meta = world.driver.meta(f"agent:{run.bound.shares[0].node_id}")
    world.driver.append(CheckpointUploadStarted(meta=meta, job_id=job.job_id, attempt=run.bound.attempt, step=done_us))


def _reject_checkpoint(world: "ScenarioWorld", one: Happening) -> None:
    job, run = _running(world, one)
    if not run.bound.resume:
        raise ScenarioError((*one.path, "job"), f"{one.job!r} runs from no checkpoint that could be rejected")
    world.driver.append(
        CheckpointRejected(
            meta=world.driver.meta(f"agent:{run.bound.shares[0].node_id}"),
            job_id=job.job_id,
            attempt=run.bound.attempt,
            checkpoint=run.bound.resume[0],
            reason=one.reason or "a file has another SHA-256",
        )
    )
    world.agents.exit_all(job, one.code or 1)


def _slow(world: "ScenarioWorld", one: Happening) -> None:
    job, run = _running(world, one)
    rank = one.rank or 0
    share = next((share for share in run.bound.shares if rank in share.ranks), None)
    if share is None:
        raise ScenarioError((*one.path, "rank"), f"{one.job!r} has no rank {rank}")
    world.driver.append(
        RankSlow(
            meta=world.driver.meta(f"agent:{share.node_id}"),
            job_id=job.job_id,
            attempt=run.bound.attempt,
            node_id=share.node_id,
            rank=rank,
            slowness_ppm=one.slowness_ppm,
        )
    )


def _idle(world: "ScenarioWorld", one: Happening) -> None:
    job, run = _running(world, one)
    meta = world.driver.meta(f"agent:{run.bound.shares[0].node_id}")
    world.driver.append(JobIdled(meta=meta, job_id=job.job_id, attempt=run.bound.attempt, idle_us=one.idle_us))


def _storage(world: "ScenarioWorld", one: Happening) -> None:
    meta = world.driver.meta("detector")
    fact = StoragePressureChanged(meta=meta, store="checkpoints", pressed=one.pressed, used_ppm=one.used_ppm)
    world.driver.append(fact)


def _lose_node(world: "ScenarioWorld", one: Happening) -> None:
    world.agents.lose_node(one.node_id, LONG_US if one.down_us is None else one.down_us)


def _unhear_node(world: "ScenarioWorld", one: Happening) -> None:
    world.driver.silence(one.node_id)
    boot_id = _boot(world, one.node_id)
    world.driver.append(NodeLost(meta=world.driver.meta("detector"), node_id=one.node_id, boot_id=boot_id))


def _hear_node(world: "ScenarioWorld", one: Happening) -> None:
    boot_id = _boot(world, one.node_id)
    if world.driver.state.nodes[one.node_id].lost:
        world.driver.append(NodeRecovered(meta=world.driver.meta("detector"), node_id=one.node_id, boot_id=boot_id))
    world.driver.hear(one.node_id)


def _break(world: "ScenarioWorld", one: Happening) -> None:
    gpu = one.gpu if one.deed == "break_gpu" else None
    meta = world.driver.meta(f"agent:{one.node_id}")
    reason = one.reason or "its hardware failed"
    world.driver.append(NodeFaulted(meta=meta, node_id=one.node_id, gpu=gpu, reason=reason))


_FACTS: Mapping[Deed, Callable[["ScenarioWorld", Happening], None]] = MappingProxyType(
    {
        "exit": _exit,
        "checkpoint": _checkpoint,
        "start_upload": _start_upload,
        "reject_checkpoint": _reject_checkpoint,
        "slow": _slow,
        "idle": _idle,
        "storage": _storage,
        "lose_node": _lose_node,
        "unhear_node": _unhear_node,
        "hear_node": _hear_node,
        "silence_node": lambda world, one: world.driver.silence(one.node_id),
        "break_node": _break,
        "break_gpu": _break,
    }
)
