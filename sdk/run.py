"""The run: what a training script tells gangline about itself, and the metrics that it logs."""

import operator
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Self, SupportsFloat, SupportsIndex

from gangline.schemas.errors import UsageError
from gangline.schemas.spool import OWN_TIME, Point, SpoolHead, SpoolWriter, spool_path
from gangline.sdk.place import Place, claim_place, launched_place, rank_now, run_name

DEFAULT_FOLDER = "gangline-runs"
"""Where runs outside gangline live, in the working directory."""

MAX_METRIC_NAME_BYTES = 256
"""Names are stored with each point and are columns' keys later."""

MAX_STEP = 2**63 - 1
"""Steps are 64-bit integers wherever they are stored."""

_active: "Run | None" = None
_active_lock = Lock()


class Run:
    """One run of a training script on this rank; made by `init`. A context manager that finishes it.

    Nothing is written before the first `log` or save, so a rank that does neither leaves no trace.
    """

    def __init__(self, *, name: str | None, folder: Path | None) -> None:
        self._launched = launched_place(os.environ)
        self._folder = (Path(DEFAULT_FOLDER) if folder is None else folder).absolute()
        self._asked = (name, folder)
        self._name = self._launched.run if self._launched else run_name(name, os.environ)
        self._lock = Lock()
        self._spool: SpoolWriter | None = None
        self._finished = False
        self._own_s: float | None = None

    @property
    def name(self) -> str:
        """The run's id: the job's inside gangline, else the name."""
        return self._name

    @property
    def attempt(self) -> int:
        """The attempt of the run that this is, counted from 1."""
        return self.place.attempt

    @property
    def by_gangline(self) -> bool:
        """Whether gangline launched this process."""
        return self._launched is not None

    @property
    def run_dir(self) -> Path:
        """The folder that holds the run's attempts."""
        return self._launched.checkpoint_dir.parent if self._launched else self._folder / self._name

    @cached_property
    def place(self) -> Place:
        """Where this attempt keeps its checkpoints and spools; outside gangline the first use claims an attempt.

        Raises `PlaceError` if the folder cannot be used.
        """
        return self._launched or claim_place(self.run_dir, os.environ)

    def log(self, values: Mapping[str, SupportsFloat | SupportsIndex], *, step: int) -> None:
        """Record metrics at a step, on this rank.

        Values are numbers or anything that `float()` takes as one (a tensor or array of one element); they are kept
        as doubles, NaN and infinities too. Steps may come in any order; a later value of the same metric and step
        counts. Returns when the death of this process cannot lose them, and never waits for a network.

        Raises `UsageError` for what is no number, step or name, and `SpoolUnwritable` if there is no space or right
        to write.
        """
        numbers = _numbers(values)
        if self._own_s is not None:
            numbers[OWN_TIME], self._own_s = self._own_s, None
        point = Point(at_us=time.time_ns() // 1000, step=step_number(step), values=numbers)
        if self._spool is None:
            self._open_spool()
        assert self._spool is not None  # noqa: S101 - _open_spool raises otherwise
        self._spool.append(point)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Count what happens inside as this rank's own work, for the next `log()`; may be entered again and again.

        Put what waits for other ranks outside: a gang that goes in step takes as long as its slowest rank, and only
        the time that each computes by itself says which one that is, so that its node can be replaced. Work that a GPU
        does later counts where it is waited for.
        """
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._own_s = (self._own_s or 0.0) + time.perf_counter() - began_s

    def _open_spool(self) -> None:
        with self._lock:
            if self._finished:
                raise UsageError(f"run {self._name!r} is finished: log before finish(), or call gangline.init() again")
            if self._spool is None:
                rank = rank_now(os.environ)
                place = self.place
                head = SpoolHead(
                    run=place.run,
                    attempt=place.attempt,
                    rank=rank,
                    created_at_us=time.time_ns() // 1000,
                )
                self._spool = SpoolWriter(spool_path(place.spool_dir, rank), head)

    def finish(self) -> None:
        """Store the metrics on the disk and end the run; a second call changes nothing.

        Calling it is optional: what was logged survives the end of the process anyway.
        """
        global _active  # noqa: PLW0603 - one process is one rank of one run
        with self._lock:
            self._finished = True
            spool, self._spool = self._spool, None
        if spool is not None:
            spool.close()
        with _active_lock:
            if _active is self:
                _active = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def __repr__(self) -> str:
        return f"<gangline run {self._name!r}>"


def init(name: str | None = None, *, folder: str | os.PathLike[str] | None = None) -> Run:
    """Begin this process's run and give it; while it goes on, the same call gives the same run.

    Inside gangline the run is the job, and name and folder are gangline's to choose. Under torchrun or plain python
    the run is called `name`, else $GANGLINE_RUN, else like the script, and lives in `folder`, else ./gangline-runs.

    Raises `UsageError` for a name that cannot be a folder's, or if another run goes on.
    """
    global _active  # noqa: PLW0603 - one process is one rank of one run
    asked = Run(name=name, folder=None if folder is None else Path(folder))
    with _active_lock:
        if _active is None:
            _active = asked
        elif (_active.name, _active.run_dir) != (asked.name, asked.run_dir):
            raise UsageError(f"run {_active.name!r} goes on in this process: call its finish() before the next init()")
        return _active


def active_run() -> Run:
    """Give the run that goes on in this process. Raises `UsageError` if there is none."""
    if _active is None:
        raise UsageError("there is no run: call gangline.init() first")
    return _active


def step_number(step: object) -> int:
    """Give a step as an int. Raises `UsageError` if it is none, negative, or over 2^63 - 1."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]  # anything may be passed; that is what is checked
    except TypeError:
        number = -1
    if isinstance(step, bool) or not 0 <= number <= MAX_STEP:
        raise UsageError(f"step is {step!r}, but must be a whole number from 0 to 2^63 - 1")
    return number


def _numbers(values: Mapping[str, SupportsFloat | SupportsIndex]) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise UsageError(f"log() takes a dict of numbers by name, got {type(values).__name__}")
    return {_metric_name(name): _number(name, value) for name, value in values.items()}


def _metric_name(name: object) -> str:
    try:
        size_bytes = len(name.encode()) if isinstance(name, str) else 0
    except UnicodeEncodeError:
        size_bytes = 0  # a lone surrogate, as in the name of a file that is not UTF-8
    if not isinstance(name, str) or not 0 < size_bytes <= MAX_METRIC_NAME_BYTES:
        raise UsageError(f"{name!r} cannot name a metric: use a string of 1 to {MAX_METRIC_NAME_BYTES} bytes of UTF-8")
    return name


def _number(name: str, value: object) -> float:
    if type(value) is float:
        return value
    if getattr(value, "requires_grad", False) is True and hasattr(value, "detach"):
        value = value.detach()  # torch warns about converting a loss that can still be differentiated
    if not isinstance(value, str | bytes) and (hasattr(value, "__float__") or hasattr(value, "__index__")):
        try:
            return float(value)  # type: ignore[arg-type]  # it has one of the two methods
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise UsageError(f"metric {name!r} is a {_type_name(value)} that is no one number: {error}") from error
    raise UsageError(f"metric {name!r} is {value!r} of type {_type_name(value)}, but must be a number")


def _type_name(value: object) -> str:
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
