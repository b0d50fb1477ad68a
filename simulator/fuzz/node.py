"""A node as it really is: what runs there, and what its agent knows and reports.

Agents here read decisions late, start what is bound, stop what is told to stop, and say so; they are cut off, crash,
and lose power. What they report is true, but it may reach the log late, twice, and out of order.
"""

from collections.abc import Mapping
from types import MappingProxyType

from gangline.events.control import (
    CheckpointUploaded,
    CheckpointUploadStarted,
    NodeChecked,
    NodeFaulted,
    RanksExited,
    RanksStarted,
)
from gangline.events.decisions import (
    AttemptEnded,
    AttemptPreempted,
    AttemptStopOrdered,
    GangBound,
    NodeCheckOrdered,
    PreemptionOrdered,
)
from gangline.events.types import AttemptRef, Blame, CheckpointRef, Decision, Event, Meta, RankExit
from gangline.simulator.fuzz.dice import keyed
from gangline.simulator.fuzz.plan import (
    CANNOT_EVER_LAUNCH,
    CANNOT_LAUNCH,
    LASTS,
    NODE_CANNOT_LAUNCH,
    Machine,
)
from gangline.simulator.fuzz.reports import cannot_launch, registered
from gangline.simulator.fuzz.running import Running, Surroundings

Key = tuple[str, int]
"""A job and the number of its attempt."""

CANNOT: Mapping[int, Blame] = MappingProxyType(
    {CANNOT_LAUNCH: "neither", CANNOT_EVER_LAUNCH: "job", NODE_CANNOT_LAUNCH: "node"}
)


class Node:
    """A node and its agent."""

    def __init__(self, machine: Machine, world: Surroundings) -> None:
        self.has = machine
        self.boots = 0
        self.agents = 0
        self.up = False
        self.cut = False
        self.runs: dict[Key, Running] = {}
        self.unreported: dict[Key, tuple[RankExit, ...]] = {}
        """Shares that ended, of which the log has not been told."""
        self.launched: set[Key] = set()
        """Every attempt that this node ever ran, or refused to."""
        self.bound: dict[Key, GangBound] = {}
        """Live attempts with a share here, as far as the agent has read."""
        self.stops: dict[Key, AttemptStopOrdered | PreemptionOrdered] = {}
        self.read = 0
        """Rounds that the agent has read."""
        self.lost = False
        """Whether the detector has said so."""
        self.silent_since_s: int | None = None
        self.back_s = 0
        self.comes_as: Machine | None = None
        self._world = world

    @property
    def boot_id(self) -> str:
        """Which boot this is."""
        return f"boot-{self.boots:03}"

    # --- life ---

    def boots_now(self, now_s: int) -> None:
        """Start the machine and its agent; nothing runs."""
        if self.comes_as is not None:
            self.has, self.comes_as = self.comes_as, None
        self.up = True
        self.boots += 1
        self.starts_agent(now_s)

    def starts_agent(self, now_s: int) -> None:
        """Start an agent, which registers with what still runs, and reads the log from its end."""
        self.agents += 1
        has = self.has
        attempts = tuple(AttemptRef(job_id=job_id, attempt=attempt) for job_id, attempt in sorted(self.runs))
        self.says(
            now_s,
            f"agent-{self.agents}",
            registered(
                self._meta(now_s, f"agent-{self.agents}"), has, self.boot_id, f"agent-{self.agents:03}", attempts
            ),
            in_order=True,
        )

    def loses_power(self, now_s: int, for_s: int, after: Machine | None) -> None:
        """Let everything on it be gone, at once."""
        if not self.up:
            return
        for key in self.runs:
            self.unreported.setdefault(key, ())
        self.runs.clear()
        self.up = self.cut = False
        self.comes_as = after
        self.silent_since_s, self.back_s = now_s, now_s + for_s

    def is_cut(self, now_s: int, for_s: int) -> None:
        """Let its agent reach nobody."""
        if self.up and not self.cut:
            self.cut = True
            self.silent_since_s, self.back_s = now_s, now_s + for_s

    # --- what it does ---

    def step(self, now_s: int) -> None:
        """Live up to now."""
        if not self.up:
            if self.boots and now_s >= self.back_s:
                self.boots_now(now_s)
                self.silent_since_s = None
            return
        self._finish(now_s)
        if self.cut:
            if now_s < self.back_s:
                return
            self.cut, self.silent_since_s = False, None
            # Whoever was cut off so long that it may have been given up lists what it has.
            self.starts_agent(now_s)
        self._report(now_s)
        self._catch_up(now_s)
        self._finish(now_s)
        self._report(now_s)

    def _finish(self, now_s: int) -> None:
        for key, run in list(self.runs.items()):
            if run.ends_s <= now_s:
                code = run.code
                ranks = [rank for share in run.shares for rank in share.ranks]
                died = ranks if code <= 0 or run.stopping else ranks[:1]
                self.unreported[key] = tuple(RankExit(rank=rank, exit_code=code) for rank in died)
                del self.runs[key]

    def _report(self, now_s: int) -> None:
        if self.cut:
            return
        for (job_id, attempt), run in self.runs.items():
            self._checkpoint(now_s, job_id, attempt, run)
        for (job_id, attempt), exits in sorted(self.unreported.items()):
            name = f"{job_id}-{attempt}"
            in_parts = exits and keyed(self._world.noise.seed, name, self.has.node_id, "parts") % 3 == 0
            for part, gone in ((exits, False), ((), True)) if in_parts else ((exits, True),):
                event = RanksExited(
                    meta=self._meta(now_s, f"exited-{name}-{gone}"),
                    job_id=job_id,
                    attempt=attempt,
                    node_id=self.has.node_id,
                    exits=part,
                    gone=gone,
                )
                self.says(now_s, f"exited-{name}-{gone}", event)
        self.unreported.clear()

    def _checkpoint(self, now_s: int, job_id: str, attempt: int, run: Running) -> None:
        every_s = run.conduct.checkpoint_s
        step = run.progress_s(now_s)
        if not run.is_first or not every_s or step < run.saved_s + every_s or step >= run.conduct.work_s:
            return
        run.saved_s = step
        self.uploads(now_s, job_id, attempt, step, run.conduct.upload_s)

    def uploads(self, now_s: int, job_id: str, attempt: int, step: int, upload_s: int) -> None:
        """Store a checkpoint, and say so when it is stored."""
        name = f"{job_id}-{attempt}-{step}"
        begun = CheckpointUploadStarted(
            meta=self._meta(now_s, f"uploads-{name}"), job_id=job_id, attempt=attempt, step=step
        )
        ref = CheckpointRef(step=step, uri=f"fuzz:///{name}", manifest_sha256=f"{step:064x}")
        done = CheckpointUploaded(
            meta=self._meta(now_s + upload_s, f"uploaded-{name}"),
            job_id=job_id,
            attempt=attempt,
            checkpoint=ref,
            size_bytes=1,
        )
        self.says(now_s, f"uploads-{name}", begun)
        self.says(now_s + upload_s, f"uploaded-{name}", done)

    def _catch_up(self, now_s: int) -> None:
        """Read what was decided, then act on the net result."""
        lag_s = self._world.lag_s(self.has.node_id, now_s)
        rounds = self._world.rounds
        checks: list[NodeCheckOrdered] = []
        while self.read < len(rounds) and rounds[self.read][0] <= now_s - lag_s:
            for decision in rounds[self.read][1]:
                self._read(decision, checks)
            self.read += 1
        for key, bound in list(self.bound.items()):
            self._follow(now_s, key, bound)
        for key, run in self.runs.items():
            if key not in self.bound:
                run.stop(now_s, 0, saves=False)
        for check in checks:
            name = f"checked-{check.check_index}"
            healthy = keyed(self._world.noise.seed, self.has.node_id, name) % 3 > 0
            self.says(
                now_s,
                name,
                NodeChecked(
                    meta=self._meta(now_s, name),
                    node_id=self.has.node_id,
                    check_index=check.check_index,
                    healthy=healthy,
                    report="it is well" if healthy else "a GPU does not answer",
                ),
            )

    def _read(self, decision: Decision, checks: list[NodeCheckOrdered]) -> None:
        node_id = self.has.node_id
        if isinstance(decision, GangBound):
            if any(share.node_id == node_id for share in decision.shares):
                self.bound[decision.job_id, decision.attempt] = decision
        elif isinstance(decision, AttemptStopOrdered | PreemptionOrdered):
            if (decision.job_id, decision.attempt) in self.bound:
                self.stops[decision.job_id, decision.attempt] = decision
        elif isinstance(decision, AttemptEnded | AttemptPreempted):
            self.bound.pop((decision.job_id, decision.attempt), None)
            self.stops.pop((decision.job_id, decision.attempt), None)
        elif isinstance(decision, NodeCheckOrdered) and decision.node_id == node_id:
            checks.append(decision)

    def _follow(self, now_s: int, key: Key, bound: GangBound) -> None:
        stop = self.stops.get(key)
        run = self.runs.get(key)
        if run is not None:
            if stop is not None:
                saves = isinstance(stop, PreemptionOrdered) and run.is_first and run.conduct.checkpoint_s > 0
                before_s = run.saved_s
                run.stop(now_s, stop.grace_us, saves=saves)
                if run.saved_s > before_s:
                    self.uploads(now_s, key[0], key[1], run.saved_s, 0)
            return
        if key in self.launched:
            return
        self.launched.add(key)
        shares = [share for share in bound.shares if share.node_id == self.has.node_id]
        conduct = self._world.conduct_of(key[0])
        ending = conduct.endings[bound.attempt - 1] if bound.attempt <= len(conduct.endings) else LASTS
        if stop is not None:
            self._cannot(now_s, key, "neither", CANNOT_LAUNCH)
            return
        if ending in CANNOT and shares[0].first_rank == 0:
            self._cannot(now_s, key, CANNOT[ending], ending)
            return
        if any(gpu not in self.has.gpus for share in shares for gpu in share.gpus):
            self._cannot(now_s, key, "node", NODE_CANNOT_LAUNCH)
            return
        self.runs[key] = Running(bound, shares, conduct, now_s)
        name = f"started-{key[0]}-{key[1]}"
        self.says(
            now_s,
            name,
            RanksStarted(
                meta=self._meta(now_s, name), job_id=key[0], attempt=key[1], node_id=self.has.node_id, run_dir="/run"
            ),
        )

    def _cannot(self, now_s: int, key: Key, blame: Blame, ending: int) -> None:
        name = f"cannot-{key[0]}-{key[1]}"
        self.says(
            now_s,
            name,
            cannot_launch(self._meta(now_s, name), self.has.node_id, key, blame, ever=ending != CANNOT_EVER_LAUNCH),
        )

    def fails(self, now_s: int, gpu: int | None) -> None:
        """Let a GPU break, or the node report itself broken; what runs on the GPU dies."""
        if not self.up:
            return
        index = None if gpu is None else self.has.gpus[gpu % len(self.has.gpus)] if self.has.gpus else None
        name = f"fault-{self.boots}-{index}-{now_s}"
        event = NodeFaulted(meta=self._meta(now_s, name), node_id=self.has.node_id, gpu=index, reason="Xid 79")
        self.says(now_s, name, event)
        for run in self.runs.values():
            if index is not None and any(index in share.gpus for share in run.shares) and run.ends_s > now_s + 1:
                run.ends_s, run.code = now_s + 1, 1

    def says(self, now_s: int, key: str, event: Event, *, in_order: bool = False) -> None:
        """Report something."""
        self._world.mail.send(now_s, f"{self.has.node_id}-{key}", event, in_order=in_order)

    def _meta(self, now_s: int, key: str) -> Meta:
        return self._world.clock.meta(now_s, f"{self.has.node_id}-{key}", f"agent:{self.has.node_id}")
