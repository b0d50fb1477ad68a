"""What the benchmarks put on the log: the control events of a busy cluster, and their encoded records."""

from gangline.events import codec
from gangline.events.control import CheckpointUploaded, NodeRegistered, RanksExited, RanksStarted, SubmitJob
from gangline.events.log import Entry
from gangline.events.types import GIB, CheckpointRef, Code, Event, Gpu, JobSpec, Meta, RankExit

MADE_AT_US = 1_750_000_000_000_000


def meta(number: int, actor: str, command_id: bytes | None = None) -> Meta:
    """Return what an event begins with, its ids counted."""
    return Meta(event_id=number.to_bytes(16, "big"), command_id=command_id, actor=actor, at_us=MADE_AT_US + number)


def command_id(number: int) -> bytes:
    """Return the id of a command made at MADE_AT_US, in the form of a UUIDv7."""
    return (MADE_AT_US // 1000).to_bytes(6, "big") + number.to_bytes(10, "big")


def node_registered(number: int) -> NodeRegistered:
    """Return the registration of a node with eight GPUs, 32 nodes to a pod."""
    return NodeRegistered(
        meta=meta(number, f"node-{number}"),
        node_id=f"node-{number}",
        boot_id="boot",
        agent_id="agent",
        address="10.0.0.1",
        pod=f"pod-{number // 32}",
        gpu_type="h200",
        gpus=tuple(Gpu(index=index, uuid=f"GPU-{number}-{index}", memory_bytes=141 * GIB) for index in range(8)),
        cpu_milli=128_000,
        memory_bytes=1024 * GIB,
    )


def submission(number: int) -> SubmitJob:
    """Return the submission of a job with one GPU."""
    digest = f"{number:064x}"
    code = Code(uri=f"file:///bundles/{digest}", sha256=digest, size_bytes=20_000, commit=None, dirty=True)
    command = ("python", "train.py", "--epochs", "90")
    spec = JobSpec(name=f"train-{number}", queue="default", command=command, gpus=1, code=code)
    return SubmitJob(meta=meta(number, "ada", command_id(number)), spec=spec)


def report_events(job_id: str, node_id: str) -> tuple[Event, ...]:
    """Return what the agent of a job's node says in its life: started, two checkpoints stored, ended."""
    started = RanksStarted(
        meta=meta(1, node_id), job_id=job_id, attempt=1, node_id=node_id, run_dir=f"/var/lib/gangline/{job_id}/1"
    )
    uploads = (
        CheckpointUploaded(
            meta=meta(1 + step, node_id),
            job_id=job_id,
            attempt=1,
            checkpoint=CheckpointRef(
                step=step, uri=f"file:///runs/{job_id}/attempt-1/step-{step}", manifest_sha256=f"{step:064x}"
            ),
            size_bytes=GIB,
        )
        for step in (1000, 2000)
    )
    exited = RanksExited(
        meta=meta(4000, node_id),
        job_id=job_id,
        attempt=1,
        node_id=node_id,
        exits=(RankExit(rank=0, exit_code=0),),
        gone=True,
    )
    return (started, *uploads, exited)


def encoded_entries(count: int) -> list[Entry]:
    """Return `count` encoded events, five a job, each keyed by its job."""
    entries: list[Entry] = []
    for number in range(-(-count // 5)):
        job_id = f"job-{number:012d}"
        events = (submission(number), *report_events(job_id, f"node-{number % 512}"))
        entries += [Entry(job_id.encode(), codec.encode(event)) for event in events]
    return entries[:count]
