"""The agents of a scenario's nodes: besides what all virtual agents do, they do what the scenario says by hand."""

from collections.abc import Mapping
from types import MappingProxyType

from gangline.events.control import LaunchFailed
from gangline.events.decisions import GangBound
from gangline.events.types import RankExit
from gangline.simulator.agents import Agents
from gangline.simulator.run import Next, Run
from gangline.simulator.virtual_job import VirtualJob


class ScenarioAgents(Agents):
    """What runs where. Times are microseconds from the beginning of the simulation."""

    cannot_launch: Mapping[str, str] = MappingProxyType({})
    """Why nodes can launch nothing."""

    def bound(self, job: VirtualJob, decision: GangBound) -> None:
        """Start a gang; a node that can launch nothing says so at once."""
        super().bound(job, decision)
        run = job.run
        for share in decision.shares:
            if run is not None and share.node_id in self.cannot_launch and share.node_id in run.shares_left:
                self._fail_launch(job, run, share.node_id)

    def _fail_launch(self, job: VirtualJob, run: Run, node_id: str) -> None:
        run.fail(self._timeline.now_us)
        self._driver.append(
            LaunchFailed(
                meta=self._driver.meta(f"agent:{node_id}"),
                job_id=job.job_id,
                attempt=run.bound.attempt,
                node_id=node_id,
                reason=self.cannot_launch[node_id],
                retryable=True,
                blame="node",
            )
        )
        run.shares_left.remove(node_id)
        self._left(job, run, node_id)

    def launches(self, node_id: str) -> bool:
        """Whether a node's agent can start ranks."""
        return node_id not in self.cannot_launch

    def save_now(self, job: VirtualJob) -> None:
        """Let a running job save what it has done so far, at once."""
        run = job.run
        if run is None or run.failed_us is not None:
            return
        saved = Next(self._timeline.now_us, "saved", run.progress_us(self._timeline.now_us))
        if saved.progress_us > run.saved_us:
            self._uploaded(job, run, saved.progress_us)
        run.save(saved)
        run.generation += 1
        self._schedule(job, run)

    def uploads(self, job: VirtualJob, attempt: int, progress_us: int) -> None:
        """Let an upload that was begun earlier be done, whatever became of its attempt."""
        self._upload(job, attempt, progress_us, "agent:uploader")

    def exit_rank(self, job: VirtualJob, rank: int, code: int) -> None:
        """Let one rank of a running job end; the others stay until they are told to stop."""
        run = job.run
        if run is None:
            return
        share = next(share for share in run.bound.shares if rank in share.ranks)
        if code:
            run.fail(self._timeline.now_us)
        exits = (RankExit(rank=rank, exit_code=code),)
        self._driver.ranks_exited(job.job_id, run.bound.attempt, share.node_id, exits, gone=False)

    def exit_all(self, job: VirtualJob, code: int) -> None:
        """Let every rank of a running job end."""
        if job.run is not None:
            job.run.fail(self._timeline.now_us)
            self._leave(job, job.run, code)
