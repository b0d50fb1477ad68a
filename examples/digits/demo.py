"""Watch gangline run a real distributed training job: submit it, kill one of its ranks, and see it resume and finish.

Everything runs in a temporary folder, and nothing is left behind. `python demo.py --log kafka` does the same on a real
Kafka broker, which it starts.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
DEPLOY = HERE.parent.parent / "deploy"
GANGLINE = [str(Path(sys.executable).parent / "gangline")]
GOAL = 0.95
WITHIN_S = 100.0


class DemoFailed(Exception):
    """What should have happened did not."""


def gangline(home: Path, *words: str) -> str:
    """Run a command and return what it printed."""
    done = subprocess.run(
        [*GANGLINE, *words], env={**os.environ, "GANGLINE_HOME": str(home)}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DemoFailed(f"gangline {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def say(text: str) -> None:
    """Tell what happens."""
    print(f"==> {text}", flush=True)


@contextmanager
def running(home: Path, log: str | None) -> Iterator[None]:
    """Run `gangline up` with two declared GPUs, until the end."""
    command = [*GANGLINE, "up", "--home", str(home), "--gpus", "2", *(["--log", log] if log else [])]
    with (home / "up.log").open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as up:
        try:
            until(lambda: "gangline is up" in (home / "up.log").read_text() or up.poll() is not None, "gangline is up")
            if up.poll() is not None:
                raise DemoFailed("gangline did not come up")
            yield
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait()


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + WITHIN_S
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.05)
    raise DemoFailed(f"not within {WITHIN_S:.0f} s: {what}")


def ranks_of(home: Path, job_id: str) -> dict[int, int]:
    """Return the process of each rank of a job that runs under this home."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            pairs = (folder / "environ").read_bytes().split(b"\0")
            parent = (folder / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        environment = dict(pair.decode(errors="replace").partition("=")[::2] for pair in pairs if pair)
        ours = environment.get("GANGLINE_SPOOL_DIR", "").startswith(str(home))
        if ours and environment.get("GANGLINE_JOB_ID") == job_id and "RANK" in environment:
            found.setdefault(int(environment["RANK"]), []).append((int(folder.name), int(parent)))
    # A rank's own children have its environment, too: the rank is the one whose parent has not.
    return {
        rank: next(pid for pid, parent in processes if parent not in {other for other, _ in processes})
        for rank, processes in found.items()
    }


def demo(home: Path, log: str | None) -> None:
    """Play it through."""
    say(f"gangline up, in {home}" + (f", on {log}" if log else ""))
    with running(home, log):
        submitted = json.loads(gangline(home, "submit", "--json", str(HERE / "digits.toml")))
        job_id = submitted["job_id"]
        say(f"submitted {job_id}, a gang of two ranks; it trains until its second checkpoint")

        def job() -> dict[str, Any]:
            shown: dict[str, Any] = json.loads(gangline(home, "job", "show", "--json", job_id))
            return shown

        def committed() -> int:
            return sum(checkpoint["state"] == "committed" for checkpoint in job()["checkpoints"])

        until(lambda: committed() >= 2, "two checkpoints committed")
        ranks = ranks_of(home, job_id)
        say(f"kill -9 of rank 1 (process {ranks[1]}), mid-run")
        os.kill(ranks[1], signal.SIGKILL)
        gangline(home, "job", "wait", job_id)
        say("its timeline, from the log:")
        print(gangline(home, "job", "show", job_id), flush=True)
        output = gangline(home, "job", "logs", job_id)
    resumed = re.search(r"resumed from step (\d+)", output)
    accuracy = re.search(r"accuracy ([0-9.]+)", output)
    if resumed is None or accuracy is None:
        raise DemoFailed(f"the job's output says neither a resumed step nor an accuracy:\n{output}")
    say(f"resumed from step {resumed[1]}")
    say(f"final accuracy on held-out digits: {float(accuracy[1]):.2%} (goal {GOAL:.0%})")
    if float(accuracy[1]) < GOAL:
        raise DemoFailed("the accuracy is below the goal")
    if left := ranks_of(home, job_id):
        raise DemoFailed(f"processes are left behind: {left}")


def main() -> int:
    """Run the demo; 0 if all of it happened."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", choices=["sqlite", "kafka"], default="sqlite")
    kind = parser.parse_args().log
    start = time.monotonic()
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gangline-demo-")))
        url = None
        if kind == "kafka":
            sys.path.insert(0, str(DEPLOY))
            from local_kafka import LocalKafka  # noqa: PLC0415 - only on Kafka, and from the folder named above

            say("starting a Kafka broker")
            broker = stack.enter_context(LocalKafka(home / "kafka"))
            url = f"kafka://{broker.bootstrap}/demo"
        try:
            demo(home, url)
        except DemoFailed as error:
            print(f"the demo failed: {error}", file=sys.stderr)
            for part in [home / "up.log", *sorted((home / "logs").glob("*.log"))]:
                print(f"--- {part.name}\n{part.read_text()[-3000:]}", file=sys.stderr)
            return 1
    say(f"all of it happened, in {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
