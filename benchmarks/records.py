"""The records that the benchmarks append: encoded control events of a busy cluster, with their keys."""

from gangline.events.codec import Codec
from gangline.events.control import CheckpointUploaded, RanksExited, RanksStarted, SubmitJob
from gangline.events.log import Entry
from gangline.events.types import CheckpointRef, Code, Event, JobSpec, Meta, RankExit


def job_events(number: int) -> tuple[Event, ...]:
    """Return what one job of two ranks puts on `control`: its submission, its start, a checkpoint, its end."""
    job_id = f"job-{number:012d}"
    node_id = f"node-{number % 512}"
    meta = Meta(event_id=number.to_bytes(16, "big"), actor=node_id, at_us=1_750_000_000_000_000 + number)
    code = Code(
        uri=f"file:///bundles/{number:064x}", sha256=f"{number:064x}", size_bytes=20_000, commit=None, dirty=True
    )
    spec = JobSpec(
        name=f"train-{number}", queue="default", command=("python", "train.py", "--epochs", "90"), gpus=2, code=code
    )
    checkpoint = CheckpointRef(step=1000, uri=f"file:///runs/{job_id}/step-1000", manifest_sha256=f"{number:064x}")
    exits = (RankExit(rank=0, exit_code=0), RankExit(rank=1, exit_code=0))
    return (
        SubmitJob(meta=meta, spec=spec),
        RanksStarted(meta=meta, job_id=job_id, attempt=1, node_id=node_id, run_dir=f"/var/lib/gangline/{job_id}/1"),
        CheckpointUploaded(meta=meta, job_id=job_id, attempt=1, checkpoint=checkpoint, size_bytes=1_000_000),
        RanksExited(meta=meta, job_id=job_id, attempt=1, node_id=node_id, exits=exits, gone=True),
    )


def encoded_entries(count: int) -> list[Entry]:
    """Return `count` encoded events of `count / 4` jobs, each keyed by its job."""
    codec = Codec()
    jobs = range(-(-count // 4))
    entries = [
        Entry(f"job-{number:012d}".encode(), codec.encode(event)) for number in jobs for event in job_events(number)
    ]
    return entries[:count]
