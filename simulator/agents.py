"""The agents of all virtual nodes: they start what is bound, stop what is told to stop, and report as real ones do."""

from collections.abc import Iterable, Sequence

from gangline.events.control import (
    CheckpointUploaded,
    NodeFaulted,
    NodeLost,
    NodeRecovered,
    NodeRegistered,
    UncordonNode,
)
from gangline.events.decisions import AttemptStopOrdered, GangBound, PreemptionOrdered
from gangline.events.types import MIB, CheckpointRef, Gpu, RankExit, Share
from gangline.simulator.driver import Driver
from gangline.simulator.observer import Observer
from gangline.simulator.run import Next, Run, segments
from gangline.simulator.timeline import Timeline
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import COMPLETIONS, Failures, VirtualNode

SIGKILL, SIGTERM = 9, 15


class Agents:
    """What runs where. Times are microseconds from the beginning of the simulation."""

    def __init__(
        self,
        driver: Driver,
        timeline: Timeline,
        nodes: Iterable[VirtualNode],
        failures: Failures,
        observers: Sequence[Observer],
    ) -> None:
        self.nodes = {node.node_id: node for node in nodes}
        self.running: dict[str, VirtualJob] = {}
        """Jobs with a live attempt, by id, in the order of their bindings."""
        self._driver = driver
        self._timeline = timeline
        self._failures = failures
        self._observers = observers
        self._boots: dict[str, int] = {}
        self._stranded: dict[str, list[tuple[str, int]]] = {}
        """Shares on nodes that are lost, as (job, attempt); their ranks are reported gone when the node is back."""

    # --- nodes ---

    def register_all(self) -> None:
        """Let every node's agent start."""
        for node in self.nodes.values():
            self.register(node)

    def register(self, node: VirtualNode) -> None:
        """Let a node's agent start; the node may be a new one."""
        self.nodes[node.node_id] = node
        boot = self._boots[node.node_id] = self._boots.get(node.node_id, 0) + 1
        self._driver.append(
            NodeRegistered(
                meta=self._driver.meta(f"agent:{node.node_id}"),
                node_id=node.node_id,
                boot_id=f"boot-{boot}",
                agent_id=f"agent-{boot}",
                address=f"{node.node_id}.simulated",
                pod=node.pod,
                gpu_type=node.gpu_type,
                gpus=tuple(Gpu(index=index) for index in range(node.gpus)),
                cpu_milli=node.cpu_milli,
                memory_bytes=node.memory_bytes,
            )
        )

    def lose_node(self, node_id: str, down_us: int) -> None:
        """Let a node and what runs there be gone, now, for so long. A node that is gone already stays so."""
        if node_id in self._stranded:
            return
        stranded = self._stranded[node_id] = []
        for job in list(self.running.values()):
            run = job.run
            if run is not None and node_id in run.shares_left:
                run.shares_left.remove(node_id)
                stranded.append((job.job_id, run.bound.attempt))
                self._failed(job, run)
                self._left(job, run, node_id)
        self._driver.append(
            NodeLost(meta=self._driver.meta("detector"), node_id=node_id, boot_id=f"boot-{self._boots[node_id]}")
        )
        for observer in self._observers:
            observer.node_changed(self._timeline.now_us, node_id, up=False)
        self._timeline.at(self._timeline.now_us + down_us, self._repair, node_id)

    def _repair(self, node_id: str) -> None:
        self.register(self.nodes[node_id])
        for job_id, attempt in self._stranded.pop(node_id):
            self._driver.ranks_exited(job_id, attempt, node_id, ())
        self._driver.append(
            NodeRecovered(meta=self._driver.meta("detector"), node_id=node_id, boot_id=f"boot-{self._boots[node_id]}")
        )
        for observer in self._observers:
            observer.node_changed(self._timeline.now_us, node_id, up=True)

    # --- what attempts do ---

    def bound(self, job: VirtualJob, decision: GangBound) -> None:
        """Start a gang."""
        failure = None
        if job.work.fails:
            gpus = sum(len(share.gpus) for share in decision.shares)
            failure = self._failures(job.work, decision.attempt, gpus, len(decision.shares))
        self.running[job.job_id] = job
        job.run = run = Run(job.work, decision, self._timeline.now_us, failure)
        job.starts(self._timeline.now_us)
        for node_id in run.shares_left:
            if not self.launches(node_id):
                continue
            self._driver.ranks_started(decision.job_id, decision.attempt, node_id)
        for observer in self._observers:
            observer.bound(self._timeline.now_us, job, run)
        self._schedule(job, run)

    def launches(self, node_id: str) -> bool:
        """Whether a node's agent can start ranks."""
        return True

    def _schedule(self, job: VirtualJob, run: Run) -> None:
        self._timeline.at(run.next().at_us, self._step, (job, run, run.generation), phase=COMPLETIONS)

    def _step(self, about: tuple[VirtualJob, Run, int]) -> None:
        job, run, generation = about
        step = run.pending
        if run.generation != generation or step is None:
            return
        if step.step == "failed":
            self._fail(job, run)
            return
        self.account(job, run, step)
        if step.step in ("saved", "yielded") and step.progress_us > run.saved_us:
            self._uploaded(job, run, step.progress_us)
        if step.step == "saved":
            run.save(step)
            self._schedule(job, run)
            return
        self._leave(job, run, 0 if step.step == "finished" else -SIGTERM)

    def _fail(self, job: VirtualJob, run: Run) -> None:
        failure = run.failure
        if failure is None:
            return
        share = run.bound.shares[failure.share]
        if failure.node_down_us is not None:
            self.lose_node(share.node_id, failure.node_down_us)
            return
        self._lose_share(job, run, share, share.first_rank, 1)

    def _lose_share(self, job: VirtualJob, run: Run, share: Share, rank: int, code: int) -> None:
        """Let a rank die, and those beside it on its node with it."""
        if share.node_id not in run.shares_left:
            return
        self._failed(job, run)
        run.shares_left.remove(share.node_id)
        self._driver.ranks_exited(job.job_id, run.bound.attempt, share.node_id, (RankExit(rank=rank, exit_code=code),))
        self._left(job, run, share.node_id)

    def _failed(self, job: VirtualJob, run: Run) -> None:
        """Let an attempt be over. If it was told to give way the ranks that are left are killed at the deadline."""
        now_us = self._timeline.now_us
        if run.failed_us is None and run.deadline_us is not None:
            self._timeline.at(max(run.deadline_us, now_us), self._kill, (job, run), phase=COMPLETIONS)
        run.fail(now_us)

    def _kill(self, about: tuple[VirtualJob, Run]) -> None:
        job, run = about
        if job.run is run:
            self._leave(job, run, -SIGKILL)

    def kill_rank(self, job: VirtualJob, rank: int) -> None:
        """Let a rank of a running job be killed, now; nothing happens where it does not run."""
        run = job.run
        for share in run.bound.shares if run is not None else ():
            if run is not None and rank in share.ranks:
                self._lose_share(job, run, share, rank, -SIGKILL)

    def break_gpu(self, node_id: str, gpu: int, down_us: int) -> None:
        """Let a GPU fail, and what runs on it; after so long an operator has replaced it."""
        for job in list(self.running.values()):
            run = job.run
            for share in run.bound.shares if run is not None else ():
                if run is not None and share.node_id == node_id and gpu in share.gpus:
                    self._lose_share(job, run, share, share.first_rank, 1)
        meta = self._driver.meta(f"agent:{node_id}")
        self._driver.append(NodeFaulted(meta=meta, node_id=node_id, gpu=gpu, reason="simulated"))
        self._timeline.at(self._timeline.now_us + down_us, self._replace_gpu, node_id)

    def _replace_gpu(self, node_id: str) -> None:
        self._driver.append(UncordonNode(meta=self._driver.command_meta("operator:simulator"), node_id=node_id))

    def _uploaded(self, job: VirtualJob, run: Run, progress_us: int) -> None:
        self._upload(job, run.bound.attempt, progress_us, f"agent:{run.bound.shares[0].node_id}")

    def _upload(self, job: VirtualJob, attempt: int, progress_us: int, actor: str) -> None:
        checkpoint = CheckpointRef(
            step=progress_us,
            uri=f"simulated:///{job.job_id}/attempt-{attempt}/step-{progress_us}",
            manifest_sha256=f"{progress_us:064x}",
        )
        self._driver.append(
            CheckpointUploaded(
                meta=self._driver.meta(actor),
                job_id=job.job_id,
                attempt=attempt,
                checkpoint=checkpoint,
                size_bytes=MIB,
            )
        )

    def _leave(self, job: VirtualJob, run: Run, code: int) -> None:
        """Report every rank that is left gone, all with one exit code."""
        exits: dict[str, list[RankExit]] = {node_id: [] for node_id in run.shares_left}
        for share in run.bound.shares:
            if share.node_id in exits:
                exits[share.node_id] += [RankExit(rank=rank, exit_code=code) for rank in share.ranks]
        for node_id, ended in exits.items():
            run.shares_left.remove(node_id)
            self._driver.ranks_exited(job.job_id, run.bound.attempt, node_id, tuple(ended))
            self._left(job, run, node_id)

    def _left(self, job: VirtualJob, run: Run, node_id: str) -> None:
        for observer in self._observers:
            observer.left(self._timeline.now_us, job, run, node_id)
        if run.shares_left or job.run is not run:
            return
        if run.failed_us is not None:
            self.account(job, run, Next(self._timeline.now_us, "failed", run.saved_us))
        job.run = None
        del self.running[job.job_id]
        job.waits(self._timeline.now_us)

    def account(self, job: VirtualJob, run: Run, step: Next) -> None:
        """Tell what an attempt did up to a step."""
        if not self._observers:
            return
        found = segments(run, step, run.accounted_us)
        run.accounted_us = step.at_us
        for observer in self._observers:
            observer.did(job, run, found)

    def stop(self, job: VirtualJob, decision: AttemptStopOrdered) -> None:
        """Let every rank of an attempt end at once."""
        run = job.run
        if run is not None and run.bound.attempt == decision.attempt:
            run.fail(self._timeline.now_us)
            self._leave(job, run, -SIGTERM)

    def preempt(self, job: VirtualJob, decision: PreemptionOrdered) -> None:
        """Let an attempt save and go."""
        job.preemptions += 1
        run = job.run
        if run is None or run.bound.attempt != decision.attempt or run.failed_us is not None:
            return
        step = run.give_way(self._timeline.now_us, decision.grace_us)
        self._timeline.at(step.at_us, self._step, (job, run, run.generation), phase=COMPLETIONS)
        for observer in self._observers:
            observer.ordered(self._timeline.now_us, job, run, decision)
