"""Holds the ranks of one gang on one node: starts them, notes how they end, stops them, and leaves no process behind.

One small process per gang and node, started by the agent as `python -I -S shim.py RUN_DIR LOCK`, LOCK being the
inherited descriptor that holds the lock of the run folder. It needs neither the agent nor the log afterwards: whoever
holds the lock is alive, what it did is in `shim.jsonl`, and a file `stop.json` tells it to stop. It imports only the
standard library, so that it starts in 20 ms, and all of it at the start, so that an upgrade cannot change it later.

Ranks get SIGKILL from the kernel should the shim die (PR_SET_PDEATHSIG), and orphans of ranks become the shim's
children (PR_SET_CHILD_SUBREAPER), so none of them escapes by forking twice. See prctl(2).
"""

import ctypes
import errno
import json
import os
import signal
import sys
import time
from typing import Any, NamedTuple, NoReturn

PLAN_FILE = "plan.json"
RECORDS_FILE = "shim.jsonl"
STOP_FILE = "stop.json"

POLL_S = 0.1
"""How often the shim looks for `stop.json`; deaths of its children wake it at once."""

RECORD_RETRIES = 600
"""How often a record that finds no space is tried again, a `POLL_S` apart, before the shim ends without it."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

_INTERRUPTS = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_WAITED_FOR = (signal.SIGCHLD, signal.SIGTERM)
_RETRYABLE = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ENOSPC, errno.ESTALE})

_prctl = ctypes.CDLL(None, use_errno=True).prctl


class Shim:
    """The processes of one share."""

    def __init__(self, run_dir: str, plan: dict[str, Any]) -> None:
        self._run_dir = run_dir
        self._plan = plan
        self._ranks: dict[int, int] = {}
        """Living ranks by process id."""
        self._dead_sessions: set[int] = set()
        """Sessions of ranks that have ended, until none of their processes is left."""
        self._deadline: float | None = None
        self._stop_seen: tuple[int, int] | None = None
        self._unwritten: list[str] = []

    def run(self) -> None:
        """Start the ranks, and return when no process of the share is left."""
        failure = self._start()
        if failure is None:
            self._record(event="started", pid=os.getpid(), ranks={str(rank): pid for pid, rank in self._ranks.items()})
        else:
            self._deadline = time.monotonic()
        while not self._finished():
            self._look_for_stop()
            received = signal.sigtimedwait(_WAITED_FOR, POLL_S)
            if received is not None and received.si_signo == signal.SIGTERM:
                self._stop(self._plan["grace_us"])
        if failure is not None:
            self._record(event="failed", **failure)
        self._record(event="gone")
        for _ in range(RECORD_RETRIES):
            if not self._unwritten:
                break
            time.sleep(POLL_S)
            self._write()

    def _start(self) -> dict[str, Any] | None:
        """Start every rank; return None, or why one could not be started."""
        started: list[tuple[dict[str, Any], int]] = []
        shim = os.getpid()
        for rank in self._plan["ranks"]:
            try:
                reader, writer = os.pipe()
                pid = os.fork()
            except OSError as error:
                return {"reason": f"rank {rank['rank']} cannot be started: {error.strerror}", "retryable": True}
            if pid == 0:
                _become(rank, self._plan["directory"], self._run_dir, writer, shim)
            os.close(writer)
            self._ranks[pid] = rank["rank"]
            started.append((rank, reader))
        failure = None
        for rank, reader in started:
            with os.fdopen(reader, "rb") as answer:
                failed = answer.read()
            if failed and failure is None:
                number, _, doing = failed.decode().partition(" ")
                failure = {"reason": _reason(rank, int(number), doing), "retryable": int(number) in _RETRYABLE}
        return failure

    def _finished(self) -> bool:
        """Reap what has died, kill what should; return whether nothing is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return True
            if pid == 0:
                break
            rank = self._ranks.pop(pid, None)
            if rank is not None:
                self._dead_sessions.add(pid)
                self._record(event="exited", rank=rank, exit_code=os.waitstatus_to_exitcode(status))
        everything = not self._ranks or (self._deadline is not None and time.monotonic() >= self._deadline)
        if everything or self._dead_sessions:
            self._kill(None if everything else self._dead_sessions)
        return False

    def _kill(self, sessions: set[int] | None) -> None:
        """Kill all descendants, or those in these sessions. Called until there are none: one may fork meanwhile."""
        found = descendants(os.getpid())
        for pid, process in found.items():
            if sessions is None or process.session in sessions:
                kill(pid, process)
        self._dead_sessions.intersection_update(process.session for process in found.values())

    def _look_for_stop(self) -> None:
        path = os.path.join(self._run_dir, STOP_FILE)  # noqa: PTH118 - pathlib costs 10 ms of start-up
        try:
            state = os.stat(path)  # noqa: PTH116 - the same
        except FileNotFoundError:
            return
        if (state.st_ino, state.st_mtime_ns) != self._stop_seen:
            self._stop_seen = (state.st_ino, state.st_mtime_ns)
            with open(path, encoding="utf-8") as stream:  # noqa: PTH123 - the same
                self._stop(json.load(stream)["grace_us"])

    def _stop(self, grace_us: int) -> None:
        """Tell the ranks, not their workers, to end; the earliest deadline of several stops counts."""
        deadline = time.monotonic() + grace_us / 1e6
        if self._deadline is None:
            for pid in self._ranks:
                os.kill(pid, signal.SIGTERM)
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _record(self, **fields: Any) -> None:  # noqa: ANN401 - whatever JSON holds
        self._unwritten.append(json.dumps({**fields, "at_us": time.time_ns() // 1000}) + "\n")
        self._write()

    def _write(self) -> None:
        """Append durably what is not written yet; a full disk is tried again later."""
        path = os.path.join(self._run_dir, RECORDS_FILE)  # noqa: PTH118 - see above
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                size = os.fstat(descriptor).st_size
                data = "".join(self._unwritten).encode()
                if os.write(descriptor, data) != len(data):
                    os.ftruncate(descriptor, size)
                    return
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            pass  # the job has deleted the folder, so nobody will read this
        except OSError:
            return
        self._unwritten.clear()


class Process(NamedTuple):
    """What identifies a process beyond its id, which may be used again: its start in clock ticks since boot."""

    parent: int
    session: int
    started: int


def process(pid: int) -> Process | None:
    """Return what /proc/PID/stat says, or None if there is no such process (any more). See proc(5)."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stream:  # noqa: PTH123 - see above
            # The name in parentheses may hold anything, so count from the last one: field 3 is the state.
            fields = stream.read().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(parent=int(fields[1]), session=int(fields[3]), started=int(fields[19]))


def descendants(ancestor: int) -> dict[int, Process]:
    """Return every process below `ancestor`, by id."""
    everyone = {int(name): process(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    children: dict[int, list[tuple[int, Process]]] = {}
    for pid, known in everyone.items():
        if known is not None:
            children.setdefault(known.parent, []).append((pid, known))
    found: dict[int, Process] = {}
    rest = [ancestor]
    while rest:
        below = children.get(rest.pop(), [])
        found.update(below)
        rest.extend(pid for pid, _ in below)
    return found


def kill(pid: int, known: Process) -> None:
    """SIGKILL a process if it still is the one that was seen; its id may be another's by now."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        now = process(pid)
        if now is not None and now.started == known.started:
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # it has died, or runs as another user: then the share is not gone until it ends
    finally:
        os.close(descriptor)


def _become(rank: dict[str, Any], directory: str, run_dir: str, writer: int, shim: int) -> NoReturn:
    """Turn this forked child into the rank; errors go to the parent as `errno what was tried`."""
    doing = "start"
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != shim:
            os._exit(1)  # the shim died before the line above could take effect
        for number in (*_INTERRUPTS, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        doing = "open its output"
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor, ending in ((1, "out"), (2, "err")):
            path = f"{run_dir}/rank-{rank['rank']}.{ending}"
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644), descriptor)
        doing = "enter the working directory"
        os.chdir(directory)
        doing = "execute"
        os.execve(rank["program"], rank["argv"], rank["env"])  # noqa: S606 - what the user submitted, without a shell
    except OSError as error:
        os.write(writer, f"{error.errno} {doing}".encode())
    except ValueError as error:  # a null character, or a variable without a name or with a "=" in it
        os.write(writer, f"{errno.EINVAL} {doing}: {error}".encode())
    finally:
        os._exit(127)


def _reason(rank: dict[str, Any], number: int, doing: str) -> str:
    if doing != "execute":
        return f"rank {rank['rank']} could not {doing}: {os.strerror(number)}"
    program = rank["program"]
    if number == errno.ENOENT:
        return (
            f"{program} cannot be executed: the interpreter that its first line names is not there; "
            "correct that line, or name the interpreter in the command"
        )
    if number == errno.ENOEXEC:
        return (
            f"{program} cannot be executed: it is neither a program for this machine nor a script that begins with "
            "#!; name its interpreter in the command, as in `bash run.sh`"
        )
    if number == errno.E2BIG:
        return f"{program} cannot be executed: command and environment are too long; put what is long into a file"
    return f"{program} cannot be executed: {os.strerror(number)}"


def main() -> None:
    """Run the share that the folder in the first argument describes."""
    run_dir, lock = sys.argv[1:]
    os.set_inheritable(int(lock), False)  # noqa: FBT003 - it takes no keyword; the ranks must not hold the lock
    for number in _INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    with open(f"{run_dir}/{PLAN_FILE}", encoding="utf-8") as stream:  # noqa: PTH123 - see above
        plan = json.load(stream)
    Shim(run_dir, plan).run()


if __name__ == "__main__":
    main()
