"""A history that leaves rows in every table."""

from msgspec.structs import replace

from gangline.events.control import (
    ActivatePolicy,
    CancelJob,
    CheckNode,
    CheckpointRejected,
    CheckpointUploaded,
    CordonNode,
    DrainNode,
    HoldJob,
    LaunchFailed,
    NodeChecked,
    NodeFaulted,
    NodeLost,
    ReleaseJob,
    RemoveQueue,
    ReprioritiseJob,
    RetryJob,
    SetQueue,
    UncordonNode,
)
from gangline.events.decisions import (
    AnswerRepeated,
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    CancelAccepted,
    CheckpointCommitted,
    CheckpointRefused,
    CommandAccepted,
    CommandRefused,
    InputQuarantined,
    JobAdmitted,
    JobEnded,
    JobRejected,
    JobRequeued,
    NodeCheckOrdered,
    NodeQuarantined,
    NodeReleased,
    NodesReserved,
    PolicyActivated,
    PreemptionOrdered,
    ReservationDropped,
    RoomHeld,
    RoomReleased,
)
from gangline.events.log import Log
from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import CheckpointRef, Event
from tests.histories import Script, gang_bound


def eventful(log: Log) -> Script:
    """Write a job that fails, resumes and succeeds; one that is cancelled; one that is rejected; and oddities."""
    script = Script(log)
    script.starts()
    script.node("node-0")
    script.node("node-1")
    job = script.admits()
    script.binds(job, nodes=("node-0", "node-1"))
    script.runs(job, node_id="node-0")
    script.runs(job, node_id="node-1")
    script.runs(job, node_id="node-1")
    script.decides()
    good, late = (CheckpointRef(step=n, uri=f"file:///c/{n}", manifest_sha256=f"{n}" * 64) for n in (1, 2))
    for ref in (good, late, good):
        script.append(CheckpointUploaded(meta=script.meta(), job_id=job, attempt=1, checkpoint=ref, size_bytes=10))
    script.append(
        CheckpointUploaded(meta=script.meta(), job_id="job-unknown", attempt=1, checkpoint=good, size_bytes=1)
    )
    script.decides(
        CheckpointCommitted(job_id=job, attempt=1, checkpoint=good),
        CheckpointRefused(job_id=job, attempt=1, checkpoint=late, reason="not \0 newer"),
    )
    script.exits(job, -9, node_id="node-0")
    script.decides(AttemptStopOrdered(job_id=job, attempt=1, reason="rank_failed", grace_us=30_000_000))
    script.exits(job, 1, node_id="node-1", rank=1)
    script.exits(job, 0, node_id="node-1", rank=1)
    script.opens()
    script.decides(
        AttemptEnded(job_id=job, attempt=1, outcome="failed", cause="rank 0 was killed by signal 9"),
        JobRequeued(job_id=job, attempt=1, failures_in_row=1, cause="rank 0 was killed by signal 9"),
        gang_bound(job, 2),
    )
    script.append(CheckpointRejected(meta=script.meta(), job_id=job, attempt=2, checkpoint=good, reason="torn"))
    script.runs(job, attempt=2)
    script.exits(job, 0, attempt=2)
    script.decides(
        AttemptEnded(job_id=job, attempt=2, outcome="succeeded", cause="every rank exited with 0"),
        JobEnded(job_id=job, outcome="succeeded", cause="every rank exited with 0", attempts=2),
    )
    preempted(script)
    cancelled(script)
    turned_away(script)
    return script


def everything(log: Log) -> Script:
    """Write that, an array, and what operators do."""
    script = eventful(log)
    array(script)
    operated(script)
    return script


def preempted(script: Script) -> None:
    """Let a job give way to another, which waits for a second node, and a third one lose what was held for it."""
    victim, claimant, unlucky = script.admits(), script.admits(), script.admits()
    script.binds(victim)
    shares = gang_bound(claimant).shares
    script.decides(
        PreemptionOrdered(job_id=victim, attempt=1, reason="service", claimant=claimant, grace_us=120_000_000),
        RoomHeld(job_id=claimant, shares=shares, reason="service", until_us=None),
        RoomHeld(job_id=unlucky, shares=shares, reason="move", until_us=7),
        NodesReserved(job_id=unlucky, node_ids=("node-0",), since_us=1, free_at_us=9),
        NodesReserved(job_id=claimant, node_ids=("node-0",), since_us=1, free_at_us=8),
    )
    script.exits(victim, -15)
    script.decides(
        AttemptPreempted(job_id=victim, attempt=1, reason="service", cause="it gave way"),
        JobRequeued(job_id=victim, attempt=1, failures_in_row=0, cause="it gave way"),
        RoomReleased(job_id=unlucky, cause="node-0 is cordoned"),
        ReservationDropped(job_id=unlucky, cause="room was made"),
    )


def cancelled(script: Script) -> None:
    job = script.admits()
    script.binds(job)
    script.append(
        LaunchFailed(
            meta=script.meta(), job_id=job, attempt=1, node_id="node-0", reason="no such file", retryable=False
        )
    )
    command_id = script.command_id()
    index = script.append(CancelJob(meta=script.meta(command_id), job_id=job, reason="enough"))
    script.decides(
        CancelAccepted(command_id=command_id, control_index=index, job_id=job),
        AttemptEnded(job_id=job, attempt=1, outcome="cancelled", cause="enough"),
        JobEnded(job_id=job, outcome="cancelled", cause="enough", attempts=1),
    )


def array(script: Script) -> None:
    """Let an array of two jobs run, one of them after the other has ended."""
    command_id = script.command_id()
    job_id, index = script.submits(command_id, array=2, array_parallel=1, name="sweep")
    script.decides(JobAdmitted(command_id=command_id, control_index=index, job_id=job_id))
    for number in range(2):
        task = f"{job_id}.{number}"
        script.decides(replace(gang_bound(task), array_index=number))
        script.runs(task)
        script.exits(task, 0)
        script.decides(
            AttemptEnded(job_id=task, attempt=1, outcome="succeeded", cause="every rank exited with 0"),
            JobEnded(job_id=task, outcome="succeeded", cause="every rank exited with 0", attempts=1),
        )
    script.decides(JobEnded(job_id=job_id, outcome="succeeded", cause="all of them succeeded", attempts=0))


def operated(script: Script) -> None:
    """Let operators and a user act on nodes, a job and queues."""
    job = script.admits()
    for command in (
        SetQueue(meta=script.meta(script.command_id()), queue=Queue(path="new", quotas=(Quota(weight=2),))),
        RemoveQueue(meta=script.meta(script.command_id()), path="b"),
        CordonNode(meta=script.meta(script.command_id()), node_id="node-0", reason="loud"),
        DrainNode(meta=script.meta(script.command_id()), node_id="node-1", reason="to be mended"),
        UncordonNode(meta=script.meta(script.command_id()), node_id="node-0"),
        CordonNode(meta=script.meta(script.command_id()), node_id="node-0"),
        HoldJob(meta=script.meta(script.command_id()), job_id=job, reason="wait"),
        ReleaseJob(meta=script.meta(script.command_id()), job_id=job),
        HoldJob(meta=script.meta(script.command_id()), job_id=job),
        RetryJob(meta=script.meta(script.command_id()), job_id=job),
        ReprioritiseJob(meta=script.meta(script.command_id()), job_id=job, priority=7),
    ):
        accepts(script, command)
    refused = CordonNode(meta=script.meta(script.command_id()), node_id="nowhere")
    index = script.append(refused)
    script.decides(
        CommandRefused(command_id=refused.meta.command_id or b"", control_index=index, message="there is none")
    )
    check = CheckNode(meta=script.meta(script.command_id()), node_id="node-0")
    index = accepts(script, check)
    script.append(NodeFaulted(meta=script.meta(), node_id="node-0", gpu=1, reason="Xid 79"))
    script.decides(NodeCheckOrdered(node_id="node-0", check_index=index))
    for healthy in (False, True):
        script.append(
            NodeChecked(
                meta=script.meta(), node_id="node-0", check_index=index, healthy=healthy, report="the disk is full"
            )
        )
    script.decides(NodeQuarantined(node_id="node-0", until_us=None, reason="the disk is full"))
    script.append(NodeLost(meta=script.meta(), node_id="node-1", boot_id="boot"))
    script.append(NodeLost(meta=script.meta(), node_id="node-0", boot_id="an earlier boot"))
    script.decides(NodeQuarantined(node_id="node-1", until_us=9, reason="it was lost"), NodeReleased(node_id="node-1"))


def accepts(script: Script, command: Event) -> int:
    index = script.append(command)
    script.decides(CommandAccepted(command_id=command.meta.command_id or b"", control_index=index))
    return index


def turned_away(script: Script) -> None:
    command_id = script.command_id()
    _, index = script.submits(command_id, queue="nowhere", env={"WORD": "\u00fc\0"})
    _, again = script.submits(command_id)
    script.decides(
        JobRejected(
            command_id=command_id,
            control_index=index,
            key="queue",
            value="nowhere",
            limit="default",
            message="there is no queue 'nowhere'; there are: default",
        ),
        AnswerRepeated(command_id=command_id, control_index=again, first_control_index=index),
    )
    bad = script.append_bytes(b"no event")
    asked = script.append(
        ActivatePolicy(meta=script.meta(command_id), policy=Policy(queues=(Queue(path="b"), Queue(path="a/c"))))
    )
    script.decides(
        InputQuarantined(control_index=bad, reason="not Avro"),
        PolicyActivated(command_id=command_id, control_index=asked),
    )
