"""Prints the output of a job's ranks from the files on this machine, attempt by attempt."""

import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

from gangline.cli.output import print_json, say
from gangline.cli.place import Place
from gangline.cli.reads import tables

POLL_S = 0.1
"""How often files and tables are looked at while following."""

BLOCK_BYTES = 1 << 20
"""What is read of a file at once."""

STREAMS = {"out": "stdout", "err": "stderr"}


class _File(NamedTuple):
    """One stream of one rank."""

    path: Path
    attempt: int
    rank: int
    stream: str


def print_logs(
    place: Place, job_id: str, *, follow: bool, first_attempt: int | None, rank: int | None, as_json: bool
) -> None:
    """Print the output of an attempt, the latest unless another is named; with `follow`, of all from there on."""
    from gangline.projections.queries import ENDED, attempts_of, find_job

    printer = Printer(rank=rank, as_json=as_json)
    at = first_attempt
    while True:
        with tables(place, None) as connection:
            job = find_job(connection, job_id)
            attempts = attempts_of(connection, job_id)
        if at is None:
            at = max(job["attempts"], 1)
        for attempt in attempts:
            # An attempt whose successor is there writes no more, so it is printed to its end first.
            if attempt["attempt"] >= at and (follow or attempt["attempt"] == at):
                printer.print(attempt)
                at = attempt["attempt"]
        if not follow or job["state"] in ENDED:
            printer.flush()
            if not printer.found:
                say(f"{job_id} has no output on this machine (it is {job['state']})")
            return
        time.sleep(POLL_S)


class Printer:
    """Prints what is new in the files of attempts, whole lines only."""

    def __init__(self, *, rank: int | None, as_json: bool) -> None:
        self.found = False
        self._rank = rank
        self._as_json = as_json
        self._read: dict[_File, int] = {}
        self._partial: dict[_File, bytes] = {}
        self._told: set[tuple[int, str]] = set()
        self._many: set[int] = set()

    def print(self, attempt: dict[str, Any]) -> None:
        """Print what is new."""
        many = attempt["world_size"] > 1 and self._rank is None
        if many:
            self._many.add(attempt["attempt"])
        for share in attempt["placement"]:
            if share["run_dir"] is None:
                continue
            folder = Path(share["run_dir"])
            place = (attempt["attempt"], share["node_id"])
            if place not in self._told:
                self._told.add(place)
                elsewhere = "" if folder.is_dir() else f", in {folder} there: this command reads local files only"
                say(f"--- attempt {place[0]} on {place[1]}{elsewhere}")
            for offset in range(share["rank_count"]):
                number = share["first_rank"] + offset
                if self._rank in (None, number):
                    for suffix in STREAMS:
                        file = _File(folder / f"rank-{number}.{suffix}", attempt["attempt"], number, suffix)
                        self._print_file(file, many=many)
        sys.stdout.flush()

    def flush(self) -> None:
        """Print what was written without an end of line."""
        for file, rest in self._partial.items():
            if rest:
                self._print_line(file, rest, many=file.attempt in self._many)
        sys.stdout.flush()

    def _print_file(self, file: _File, *, many: bool) -> None:
        try:
            stream = file.path.open("rb")
        except OSError:
            return
        with stream:
            stream.seek(self._read.get(file, 0))
            while block := stream.read(BLOCK_BYTES):
                self.found = True
                self._read[file] = self._read.get(file, 0) + len(block)
                *lines, rest = (self._partial.get(file, b"") + block).split(b"\n")
                self._partial[file] = rest
                for line in lines:
                    self._print_line(file, line, many=many)

    def _print_line(self, file: _File, line: bytes, *, many: bool) -> None:
        text = line.decode(errors="replace")
        if self._as_json:
            print_json({"attempt": file.attempt, "rank": file.rank, "stream": STREAMS[file.stream], "line": text})
        else:
            sys.stdout.write(f"[{file.rank}] {text}\n" if many else f"{text}\n")
