"""What users, operators and chance do in a randomised world: each step of a case as records of the log."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from gangline.events import codec
from gangline.events.control import (
    ActivatePolicy,
    CancelJob,
    CheckNode,
    ClockTicked,
    CordonNode,
    DrainNode,
    Heartbeat,
    HoldJob,
    JobIdled,
    RanksExited,
    RankSlow,
    ReleaseJob,
    RemoveQueue,
    ReprioritiseJob,
    RetryJob,
    SetQueue,
    StoragePressureChanged,
    SubmitJob,
    UncordonNode,
)
from gangline.events.ids import derived, job_id
from gangline.events.types import SECOND_US, Event, JobSpec, Meta, RankExit
from gangline.simulator.fuzz import plan as cases
from gangline.simulator.fuzz.checked import Checked
from gangline.simulator.fuzz.machines import Machines
from gangline.simulator.fuzz.mail import Mail
from gangline.simulator.fuzz.running import Clock

LOG_ID = "fuzz"
START_US = 1_750_000_000 * SECOND_US
ON_NODE: Mapping[str, type] = MappingProxyType(
    {"cordon": CordonNode, "uncordon": UncordonNode, "drain": DrainNode, "check": CheckNode}
)
ON_JOB: Mapping[str, type] = MappingProxyType(
    {"cancel": CancelJob, "hold": HoldJob, "release": ReleaseJob, "retry": RetryJob, "reprioritise": ReprioritiseJob}
)


_SPEC = JobSpec(name="odd", queue="default", command=("true",), gpus=1)


class Acts:
    """Does the steps. `now_s` is the second of the world that it is."""

    def __init__(self, clock: Clock, mail: Mail, machines: Machines, core: Checked) -> None:
        self.now_s = 0
        self.crash: cases.Crash | None = None
        """Asked for before or after the next tick."""
        self.skew_s = 0
        """How wrong the ticker's clock is at the next tick."""
        self._clock = clock
        self._mail = mail
        self._machines = machines
        self._core = core
        self._said = 0
        self._ids: dict[int, bytes] = {}
        self._does: dict[type, Callable[[Any], None]] = {
            cases.Submit: self._submit,
            cases.OnJob: self._on_job,
            cases.OnNode: self._on_node,
            cases.Activate: lambda step: self.command(ActivatePolicy, policy=step.policy),
            cases.Queueing: self._set_queue,
            cases.Down: lambda step: self._node(step).loses_power(self.now_s, step.for_s, step.after),
            cases.Cut: lambda step: self._node(step).is_cut(self.now_s, step.for_s),
            cases.AgentRestart: self._restart_agent,
            cases.Fault: lambda step: self._node(step).fails(self.now_s, step.gpu),
            cases.Report: self._report,
            cases.Pressure: self._press,
            cases.Odd: self._odd,
            cases.Crash: self._crashes,
            cases.Skew: self._skews,
        }

    def do(self, step: cases.AnyStep) -> None:
        """Do a step, now."""
        self._does[type(step)](step)

    def mend(self) -> None:
        """Bring back what is away, and let everything start that may."""
        self._mail.quiet = True
        self._machines.mend(self.now_s)
        for node_id in self._machines.nodes:
            if node_id in self._core.ledger.nodes:
                self.command(UncordonNode, node_id=node_id)
        for held_id, job in sorted(self._core.ledger.jobs.items()):
            if job.held and job.ended is None:
                self.command(ReleaseJob, job_id=held_id)
        self.say(StoragePressureChanged, "pressure", store="fuzz", pressed=False, used_ppm=1)

    # --- what steps do ---

    def _submit(self, step: cases.Submit) -> None:
        spec = step.spec
        if spec.after:
            spec = replace(spec, after=tuple(self._job(int(number)) for number in spec.after))
        again = self._ids.get(step.number)
        command_id = again or self._command_id(f"job-{step.number}")
        self._ids[step.number] = command_id
        if again is None:
            self._machines.conducts[job_id(LOG_ID, command_id)] = step.conduct
        self.say(SubmitJob, f"submit-{step.number}", command_id=command_id, spec=spec)

    def _job(self, number: int) -> str:
        command_id = self._ids.get(number)
        return "job-unknown" if command_id is None else job_id(LOG_ID, command_id)

    def _on_job(self, step: cases.OnJob) -> None:
        about = self._job(step.number) + ("" if step.task is None else f".{step.task}")
        more = {"priority": step.priority} if step.does == "reprioritise" else {}
        self.command(ON_JOB[step.does], job_id=about, **more)

    def _on_node(self, step: cases.OnNode) -> None:
        self.command(ON_NODE[step.does], node_id=step.node_id)

    def _set_queue(self, step: cases.Queueing) -> None:
        if step.removed:
            self.command(RemoveQueue, path=step.queue.path)
        else:
            self.command(SetQueue, queue=step.queue)

    def _node(self, step: cases.Down | cases.Cut | cases.Fault | cases.AgentRestart) -> Any:  # noqa: ANN401 - a node
        return self._machines.nodes[step.node_id]

    def _restart_agent(self, step: cases.AgentRestart) -> None:
        node = self._machines.nodes[step.node_id]
        if node.up and not node.cut:
            node.starts_agent(self.now_s)

    def _report(self, step: cases.Report) -> None:
        about = self._job(step.number)
        job = self._core.ledger.jobs.get(about)
        if job is None or job.live is None:
            return
        bound = job.live
        if step.what == "idle":
            timeout_us = job.spec.idle_timeout_us or self._core.state.policy.idle_timeout_us  # type: ignore[union-attr]
            self.say(JobIdled, "idle", job_id=about, attempt=bound.attempt, idle_us=timeout_us)
            return
        share = bound.shares[-1]
        self.say(
            RankSlow,
            "slow",
            job_id=about,
            attempt=bound.attempt,
            node_id=share.node_id,
            rank=share.first_rank,
            slowness_ppm=2_000_000,
        )

    def _press(self, step: cases.Pressure) -> None:
        self.say(StoragePressureChanged, "pressure", store="fuzz", pressed=step.pressed, used_ppm=950_000)

    def _odd(self, step: cases.Odd) -> None:
        core, what = self._core, step.what
        if what == "bytes":
            core.append_bytes(b"rubbish")
        elif what == "truncated":
            core.append_bytes(codec.encode(SubmitJob(meta=self.meta("cut"), spec=_SPEC))[:-3])
        elif what == "misplaced":
            self.say(Heartbeat, "beat", node_id="node-0", boot_id="boot-001", agent_id="agent-001", sequence=1)
        elif what == "other_ticker":
            self.say(ClockTicked, "tick", ticker="another")
        else:
            self._phantom(what)

    def _phantom(self, what: str) -> None:
        """Report ranks gone of a job, on a node, or of an attempt that there never was."""
        known = sorted(self._core.ledger.jobs)
        about = known[0] if known and what != "phantom_job" else "job-unknown"
        nodes = sorted(self._core.ledger.nodes)
        where = nodes[0] if nodes and what != "phantom_node" else "node-unknown"
        attempt = 99 if what == "phantom_attempt" else 1
        exits = (RankExit(rank=0, exit_code=1),)
        self.say(RanksExited, "phantom", job_id=about, attempt=attempt, node_id=where, exits=exits, gone=True)

    def _crashes(self, step: cases.Crash) -> None:
        self.crash = step

    def _skews(self, step: cases.Skew) -> None:
        self.skew_s = step.by_s

    # --- records ---

    def command(self, kind: type, **fields: object) -> None:
        """Send a command."""
        self.say(kind, kind.__name__, command_id=self._command_id(f"{kind.__name__}-{self._said}"), **fields)

    def say(self, kind: type, key: str, *, command_id: bytes | None = None, **fields: object) -> None:
        """Send a record."""
        self._said += 1
        meta = replace(self.meta(f"{key}-{self._said}"), command_id=command_id)
        event: Event = kind(meta=meta, **fields)
        self._mail.send(self.now_s, f"{key}-{self._said}", event)

    def _command_id(self, key: str) -> bytes:
        """Return a UUIDv7 made now, the same in every run."""
        made_ms = (START_US + self.now_s * SECOND_US) // 1000
        return made_ms.to_bytes(6, "big") + derived(LOG_ID, self.now_s, key)[6:]

    def meta(self, key: str) -> Meta:
        """Return the meta of a record that `key` names, said now."""
        return self._clock.meta(self.now_s, key, "fuzz")
