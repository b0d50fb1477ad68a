"""Builds an agent's events: who says so, when, and because of what."""

import time
from collections.abc import Iterable

from gangline.agents.inventory import Inventory
from gangline.agents.run_folder import AttemptKey, Failure
from gangline.events import control, ids
from gangline.events.types import AttemptRef, CheckpointRef, Meta, RankExit

MAX_REASON_CHARACTERS = 4000
"""A reason is for people; what is longer is in the node's files."""


def now_us() -> int:
    """Return this machine's clock, microseconds since 1970."""
    return time.time_ns() // 1000


class Facts:
    """Events of one run of one agent."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._node_id = inventory.node_id
        self._agent_id = ids.uuid7().hex()

    def _meta(self, cause: str | None = None, at_us: int | None = None) -> Meta:
        return Meta(
            event_id=ids.uuid7(),
            actor=f"agent:{self._node_id}",
            at_us=now_us() if at_us is None else at_us,
            cause=cause,
        )

    def registered(self, attempts: Iterable[AttemptKey]) -> control.NodeRegistered:
        """Say that the agent has started, and of which attempts something may still run here."""
        has = self._inventory
        return control.NodeRegistered(
            meta=self._meta(),
            node_id=has.node_id,
            boot_id=has.boot_id,
            agent_id=self._agent_id,
            address=has.address,
            pod=has.pod,
            gpu_type=has.gpu_type,
            gpus=has.gpus,
            cpu_milli=has.cpu_milli,
            memory_bytes=has.memory_bytes,
            attempts=tuple(AttemptRef(job_id=key.job_id, attempt=key.attempt) for key in sorted(attempts)),
            attempts_listed=True,
        )

    def heartbeat(self, sequence: int) -> control.Heartbeat:
        """Say that the agent is alive."""
        return control.Heartbeat(
            meta=self._meta(),
            node_id=self._node_id,
            boot_id=self._inventory.boot_id,
            agent_id=self._agent_id,
            sequence=sequence,
        )

    def started(self, key: AttemptKey, run_dir: str, *, cause: str | None, at_us: int) -> control.RanksStarted:
        """Say that the share's ranks run."""
        return control.RanksStarted(
            meta=self._meta(cause, at_us),
            job_id=key.job_id,
            attempt=key.attempt,
            node_id=self._node_id,
            run_dir=run_dir,
        )

    def exited(
        self, key: AttemptKey, exits: tuple[RankExit, ...], *, gone: bool, at_us: int | None = None
    ) -> control.RanksExited:
        """Say that ranks have ended, or that nothing of the share is left."""
        return control.RanksExited(
            meta=self._meta(at_us=at_us),
            job_id=key.job_id,
            attempt=key.attempt,
            node_id=self._node_id,
            exits=exits,
            gone=gone,
        )

    def launch_failed(self, key: AttemptKey, failure: Failure, *, cause: str | None) -> control.LaunchFailed:
        """Say that the share could not be started."""
        return control.LaunchFailed(
            meta=self._meta(cause, failure.at_us),
            job_id=key.job_id,
            attempt=key.attempt,
            node_id=self._node_id,
            reason=failure.reason[:MAX_REASON_CHARACTERS],
            retryable=failure.retryable,
            blame=failure.blame,
        )

    def upload_started(self, key: AttemptKey, step: int) -> control.CheckpointUploadStarted:
        """Say that a checkpoint is complete, and about to be verified."""
        return control.CheckpointUploadStarted(meta=self._meta(), job_id=key.job_id, attempt=key.attempt, step=step)

    def idled(self, key: AttemptKey, idle_us: int) -> control.JobIdled:
        """Say that an interactive job has done nothing for so long."""
        return control.JobIdled(meta=self._meta(), job_id=key.job_id, attempt=key.attempt, idle_us=idle_us)

    def uploaded(self, key: AttemptKey, checkpoint: CheckpointRef, size_bytes: int) -> control.CheckpointUploaded:
        """Say that a checkpoint is stored and verified."""
        return control.CheckpointUploaded(
            meta=self._meta(),
            job_id=key.job_id,
            attempt=key.attempt,
            checkpoint=checkpoint,
            size_bytes=size_bytes,
        )

    def rejected(self, key: AttemptKey, checkpoint: CheckpointRef, reason: str) -> control.CheckpointRejected:
        """Say that a rank found an offered checkpoint damaged."""
        return control.CheckpointRejected(
            meta=self._meta(),
            job_id=key.job_id,
            attempt=key.attempt,
            checkpoint=checkpoint,
            reason=reason[:MAX_REASON_CHARACTERS],
        )

    def checked(self, check_index: int, *, healthy: bool, report: str) -> control.NodeChecked:
        """Say what an examination of the node has found."""
        return control.NodeChecked(
            meta=self._meta(f"control:{check_index}"),
            node_id=self._node_id,
            check_index=check_index,
            healthy=healthy,
            report=report[:MAX_REASON_CHARACTERS],
        )

    def faulted(self, gpu: int | None, reason: str) -> control.NodeFaulted:
        """Say that a GPU, or the node as a whole (None), is broken."""
        reason = reason[:MAX_REASON_CHARACTERS]
        return control.NodeFaulted(meta=self._meta(), node_id=self._node_id, gpu=gpu, reason=reason)

    def storage(self, store: str, *, pressed: bool, used_ppm: int) -> control.StoragePressureChanged:
        """Say that a store is nearly full, or that it is not."""
        return control.StoragePressureChanged(meta=self._meta(), store=store, pressed=pressed, used_ppm=used_ppm)

    def slow(self, key: AttemptKey, node_id: str, rank: int, slowness_ppm: int) -> control.RankSlow:
        """Say that a rank, here or on another node of its gang, is slower than its peers."""
        return control.RankSlow(
            meta=self._meta(),
            job_id=key.job_id,
            attempt=key.attempt,
            node_id=node_id,
            rank=rank,
            slowness_ppm=slowness_ppm,
        )
