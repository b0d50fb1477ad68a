"""A node under test: a real agent process on a real log, decisions written by hand, facts waited for."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Self, TypeVar

from gangline.agents import processes
from gangline.agents.run_folder import AttemptKey, RunFolder
from gangline.events import codec, control, identity
from gangline.events.decisions import AttemptEnded, AttemptStopOrdered, GangBound, RoundDecided, TermOpened
from gangline.events.log import CONTROL, DECISIONS, HEARTBEATS, Entry
from gangline.events.open_log import open_log
from gangline.events.types import Code, Decision, Event, Meta, Share

WAIT_S = 20.0
"""Longest wait for anything; passing tests wait for milliseconds."""

META = Meta(event_id=bytes(16), actor="test", at_us=0)
NODE = "node-1"

_E = TypeVar("_E", bound=Event)
_T = TypeVar("_T")


def wait_for(condition: Callable[[], _T | None], what: str, *, timeout_s: float = WAIT_S) -> _T:
    """Return the condition's first true value."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"no {what} within {timeout_s} s"
        time.sleep(0.01)
    return found


def gang(
    *command: str,
    job_id: str = "job-a",
    attempt: int = 1,
    ranks: int = 1,
    port: int = 29_999,
    env: dict[str, str] | None = None,
    grace_us: int = 20_000_000,
    code: Code | None = None,
    checkpoints: str | None = None,
    shares: tuple[Share, ...] | None = None,
) -> GangBound:
    """Bind a command to the node, or to the shares given."""
    whole = share(NODE, tuple(range(ranks)), 0)
    return GangBound(
        job_id=job_id,
        attempt=attempt,
        shares=shares or (whole,),
        world_size=sum(len(part.ranks) for part in shares or (whole,)),
        master_address="127.0.0.1",
        master_port=port,
        resume=(),
        name=job_id,
        command=command,
        env=env or {},
        grace_us=grace_us,
        code=code,
        checkpoints=checkpoints,
    )


def share(
    node_id: str, gpus: tuple[int, ...], first_rank: int, *, role: str = "", rank_count: int | None = None
) -> Share:
    return Share(
        node_id=node_id,
        address="127.0.0.1",
        gpus=gpus,
        gpu_milli=1000,
        cpu_milli=0,
        memory_bytes=0,
        first_rank=first_rank,
        role=role,
        rank_count=rank_count,
    )


def stop(bound: GangBound, *, grace_s: float) -> AttemptStopOrdered:
    return AttemptStopOrdered(
        job_id=bound.job_id, attempt=bound.attempt, reason="cancelled", grace_us=round(grace_s * 1e6)
    )


def ended(bound: GangBound) -> AttemptEnded:
    return AttemptEnded(job_id=bound.job_id, attempt=bound.attempt, outcome="failed", cause="test")


class Node:
    """A node with its log; use as a context manager, which ends whatever is left and checks that nothing was."""

    def __init__(self, folder: Path, *, gpus: int = 4, log_url: str | None = None) -> None:
        self.home = folder / "home"
        self.log_url = log_url or f"sqlite:{folder / 'log'}"
        self.log = open_log(self.log_url, create=True)
        self.log_id = identity.create(self.log, actor="test")
        self.gpus = gpus
        self.agent: subprocess.Popen[bytes] | None = None
        self.stderr = folder / "agent.err"
        self._tick = 0
        term = TermOpened(
            meta=META,
            term=1,
            previous=0,
            control_index=0,
            code_digest="",
            wheel=None,
            boundary_sha256=None,
            state_sha256="",
        )
        self.log.append(DECISIONS, [Entry(b"", codec.encode(term))])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        tokens = [plan.token for key in self.attempts() if (plan := self.folder(key).plan()) is not None]
        if self.agent is not None:
            self.kill_agent()
        left = {pid: token for token in tokens for pid in processes.having(token)}
        for token in set(left.values()):
            processes.sweep(token)
        shims = [key for key in self.attempts() if self.folder(key).shim_lives()]
        self.log.close()
        if _[0] is None:
            assert not left, f"processes left: {left}"
            assert not shims, f"shims left: {shims}"

    def decide(self, *decisions: Decision, term: int = 1) -> None:
        """Append a round."""
        self._tick += 1
        decided = RoundDecided(
            meta=META,
            tick_index=self._tick,
            tick_event_id=bytes(16),
            term=term,
            more=False,
            decisions=tuple(codec.encode(decision) for decision in decisions),
        )
        self.log.append(DECISIONS, [Entry(b"", codec.encode(decided))])

    def start_agent(self, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        with self.stderr.open("ab") as errors:
            self.agent = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gangline.agents", "--home", str(self.home), "--log", self.log_url),
                    *("--node-id", NODE, "--gpus", str(self.gpus), "--address", "127.0.0.1", *arguments),
                ],
                stderr=errors,
                env={**os.environ, **environment},
            )
        return self.agent

    def kill_agent(self, number: int = signal.SIGKILL) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)
        self.agent.wait(WAIT_S)
        self.agent = None

    def events(self, topic: str = CONTROL, partition: int = 0) -> Iterator[Event]:
        reader = self.log.reader(topic, partition=partition)
        for records in reader.read_to_end():
            for record in records:
                event = codec.decode(record.value)
                assert isinstance(event, Event)
                yield event
        reader.close()

    def heartbeats(self) -> list[control.Heartbeat]:
        beats = [event for partition in range(8) for event in self.events(HEARTBEATS, partition)]
        return [event for event in beats if isinstance(event, control.Heartbeat)]

    def facts(self, kind: type[_E], bound: GangBound | None = None) -> list[_E]:
        return [
            event
            for event in self.events()
            if isinstance(event, kind)
            and (bound is None or (getattr(event, "job_id", ""), getattr(event, "attempt", 0)) == key_of(bound))
        ]

    def wait_fact(self, kind: type[_E], bound: GangBound | None = None, *, count: int = 1) -> _E:
        """Return the newest of at least `count` facts of this kind."""
        found = wait_for(
            lambda: facts if len(facts := self.facts(kind, bound)) >= count else None, f"{count} {kind.__name__}"
        )
        return found[-1]

    def wait_gone(self, bound: GangBound, *, timeout_s: float = WAIT_S) -> dict[int, int]:
        """Return the exit codes by rank, once the share is reported gone."""

        def gone() -> control.RanksExited | None:
            return next((event for event in self.facts(control.RanksExited, bound) if event.gone), None)

        event = wait_for(gone, "RanksExited with gone", timeout_s=timeout_s)
        return {exit_.rank: exit_.exit_code for exit_ in event.exits}

    def wait_output(self, bound: GangBound, text: str, *, rank: int = 0, timeout_s: float = WAIT_S) -> str:
        """Return a rank's output once it contains `text`, and no half of a line."""
        path = self.folder(key_of(bound)).path / f"rank-{rank}.out"
        return wait_for(
            lambda: found if path.exists() and text in (found := path.read_text()) and found[-1] == "\n" else None,
            f"{text!r} in {path}",
            timeout_s=timeout_s,
        )

    def folder(self, key: AttemptKey) -> RunFolder:
        return RunFolder(self.home / "agents" / NODE / "attempts" / key.folder_name)

    def folder_of(self, bound: GangBound) -> RunFolder:
        return self.folder(key_of(bound))

    def attempts(self) -> list[AttemptKey]:
        folder = self.home / "agents" / NODE / "attempts"
        names = [path.name.rpartition("-") for path in folder.iterdir()] if folder.exists() else []
        return [AttemptKey(job, int(attempt)) for job, _, attempt in names]


def key_of(bound: GangBound) -> AttemptKey:
    return AttemptKey(bound.job_id, bound.attempt)


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
