"""Whether an interactive job does anything: by its processes' use of the GPUs where there are some, else of the CPU.

A notebook that waits for its user takes a few thousandths of a core, a job at work takes most of one.
"""

import logging
import time

import psutil

from gangline.agents import shim
from gangline.agents.facts import Facts
from gangline.agents.outbox import Outbox
from gangline.agents.run_folder import AttemptKey, Plan
from gangline.events.types import SECOND_US, Value

LONGEST_SAMPLE_S = 10.0
"""Between two looks; shorter time-outs are looked at `SAMPLES` times."""

SAMPLES = 5

BUSY_CPU_PPM = 20_000
"""Part of a core from which the ranks are at work: twenty thousandths."""


_log = logging.getLogger(__name__)


class Sample(Value, frozen=True, kw_only=True):
    """What the processes had used when they were looked at. `gpu_busy`: at some moment since the look before."""

    at_s: float
    cpu_s: float
    gpu_busy: bool | None
    """None where that cannot be told."""


class IdleWatch:
    """Reports that an attempt has done nothing for its time-out, once for each time-out. Belongs to one thread."""

    def __init__(self, key: AttemptKey, plan: Plan, facts: Facts, outbox: Outbox) -> None:
        self._key = key
        self._plan = plan
        self._facts = facts
        self._outbox = outbox
        self._timeout_s = (plan.idle_timeout_us or 0) / SECOND_US
        self._every_s = min(LONGEST_SAMPLE_S, self._timeout_s / SAMPLES)
        self._before: Sample | None = None
        self._busy_s = time.monotonic()
        """When it was last seen at work."""
        self._due_s = self._busy_s

    def poll(self, shim_pid: int) -> None:
        """Look if it is time to, and report."""
        if time.monotonic() < self._due_s:
            return
        since_us = 0 if self._before is None else time.time_ns() // 1000 - round(2 * self._every_s * SECOND_US)
        now = look_at(shim_pid, self._plan, since_us)
        self._due_s = now.at_s + self._every_s
        if self._before is None or is_busy(self._before, now):
            self._busy_s = now.at_s
        self._before = now
        idle_s = now.at_s - self._busy_s
        if idle_s >= self._timeout_s:
            fact = self._facts.idled(self._key, round(idle_s * SECOND_US))
            if self._outbox.put(self._key.job_id, fact):
                _log.warning("attempt %d of %s was idle for %.0f s", self._key.attempt, self._key.job_id, idle_s)
                self._due_s = now.at_s + self._timeout_s


def is_busy(before: Sample, now: Sample) -> bool:
    """Whether the processes were at work between two looks."""
    if now.gpu_busy is not None:
        return now.gpu_busy
    elapsed_s = now.at_s - before.at_s
    # Less than before: a process has ended unseen by its parent, so something went on.
    return now.cpu_s < before.cpu_s or (now.cpu_s - before.cpu_s) * SECOND_US >= elapsed_s * BUSY_CPU_PPM


def look_at(shim_pid: int, plan: Plan, since_us: int) -> Sample:
    """Return what the processes below a shim have used; of GPUs, since that time."""
    pids = sorted(shim.descendants(shim_pid))
    cpu_s = 0.0
    for pid in pids:
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.Error:
            continue
        cpu_s += times.user + times.system + times.children_user + times.children_system
    return Sample(at_s=time.monotonic(), cpu_s=cpu_s, gpu_busy=_gpu_busy(plan.gpus, pids, since_us))


def _gpu_busy(gpus: tuple[int, ...], pids: list[int], since_us: int) -> bool | None:
    """Return whether these processes computed on these devices since then; None if that cannot be told."""
    if not gpus:
        return None
    import pynvml  # noqa: PLC0415 - most machines that this runs on in tests have no use for it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        for gpu in gpus:
            handle = pynvml.nvmlDeviceGetHandleByIndex(gpu)
            try:
                samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since_us)
            except pynvml.NVMLError_NotFound:
                continue  # no process has computed there since
            if any(sample.pid in pids and (sample.smUtil or sample.memUtil) for sample in samples):
                return True
    except pynvml.NVMLError as error:
        _log.debug("the use of GPU by process cannot be told: %s", error)
        return None
    finally:
        pynvml.nvmlShutdown()
    return False
