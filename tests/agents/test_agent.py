"""A real agent, its shims and ranks: launching, stopping, and leaving nothing behind."""

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.events import bundle, codec, objects
from gangline.events.control import LaunchFailed, NodeChecked, NodeRegistered, RanksExited, RanksStarted
from gangline.events.decisions import (
    AttemptPreempted,
    BindingsSnapshot,
    GangBound,
    LiveAttempt,
    NodeCheckOrdered,
    PreemptionOrdered,
)
from gangline.events.log import DECISIONS
from gangline.events.types import Code
from tests.agents.node import META, NODE, Node, alive, ended, gang, share, stop, wait_for

RUN_UNTIL_STOPPED = "import os, time\nprint('pid', os.getpid(), flush=True)\nwhile True: time.sleep(0.02)"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Node(tmp_path) as started:
        yield started


def python(source: str) -> tuple[str, str, str]:
    return ("python", "-c", source)


def refusal(node: Node, bound: GangBound) -> LaunchFailed:
    """Return why a gang was not launched, having seen that it never started."""
    node.start_agent()
    node.decide(bound)
    failed = node.wait_fact(LaunchFailed, bound)
    assert not node.facts(RanksStarted, bound)
    assert not node.facts(RanksExited, bound)
    return failed


def test_a_bound_gang_is_launched_and_its_end_reported(node: Node) -> None:
    source = "import os, sys; print('rank', os.environ['RANK']); sys.exit(int(os.environ['RANK']))"
    bound = gang(*python(source), ranks=2)
    node.start_agent()
    registered = node.wait_fact(NodeRegistered)
    assert (registered.node_id, len(registered.gpus), registered.gpu_type) == (NODE, 4, "declared")
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0, 1: 1}
    started = node.wait_fact(RanksStarted, bound)
    assert (Path(started.run_dir) / "rank-1.out").read_text() == "rank 1\n"
    assert started.meta.cause == "decisions:2"
    wait_for(lambda: "node node-1 is registered" in node.stderr.read_text(), "line on stderr")


def test_exits_and_signals_are_reported_as_they_happen_and_hurt_no_other_rank(node: Node) -> None:
    source = (
        "import os, signal, sys, time\nrank = os.environ['RANK']\nprint('up', flush=True)\n"
        "if rank == '1': os.kill(os.getpid(), signal.SIGSEGV)\n"
        "if rank == '2': sys.exit(3)\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
    )
    bound = gang(*python(source), ranks=3)
    node.start_agent()
    node.decide(bound)

    def exits() -> dict[int, int]:
        events = node.facts(RanksExited, bound)
        assert not any(event.gone for event in events)
        return {exit_.rank: exit_.exit_code for event in events for exit_ in event.exits}

    wait_for(lambda: len(exits()) == 2, "two exits")
    assert exits() == {1: -signal.SIGSEGV, 2: 3}
    (node.folder_of(bound).work / "go").touch()
    assert node.wait_gone(bound) == {0: 0, 1: -signal.SIGSEGV, 2: 3}


def test_a_share_on_another_node_is_left_alone_and_ours_gets_its_ranks(node: Node) -> None:
    code = "import os; print(os.environ['RANK'], os.environ['LOCAL_RANK'], os.environ['GROUP_RANK'])"
    bound = gang(*python(code), shares=(share("node-0", (0, 1), 0), share(NODE, (1, 3), 2)))
    elsewhere = gang(*python(code), job_id="job-b", shares=(share("node-0", (0,), 0),))
    node.start_agent()
    node.decide(elsewhere, bound)
    assert node.wait_gone(bound) == {2: 0, 3: 0}
    assert node.wait_output(bound, "\n", rank=3) == "3 1 1\n"
    assert [key.job_id for key in node.attempts()] == ["job-a"]


def test_a_stop_lets_ranks_save_and_kills_what_ignores_it_at_the_deadline(node: Node) -> None:
    saving = "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    ignoring = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    source = f"import os\nexec({saving!r} if os.environ['RANK'] == '0' else {ignoring!r})\n{RUN_UNTIL_STOPPED}"
    bound = gang(*python(source), ranks=2)
    node.start_agent()
    node.decide(bound)
    for rank in (0, 1):
        node.wait_output(bound, "pid", rank=rank)
    node.decide(stop(bound, grace_s=0.5))
    assert node.wait_gone(bound) == {0: 7, 1: -signal.SIGKILL}


def preemption(bound: GangBound, *, grace_s: float) -> PreemptionOrdered:
    return PreemptionOrdered(
        job_id=bound.job_id, attempt=bound.attempt, reason="service", claimant="job-b", grace_us=round(grace_s * 1e6)
    )


def test_a_preempted_gang_saves_within_its_own_grace_and_makes_way_for_its_next_attempt(node: Node) -> None:
    saving = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
    bound = gang(*python(saving + RUN_UNTIL_STOPPED))
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "pid")
    node.decide(preemption(bound, grace_s=60))
    assert node.wait_gone(bound) == {0: 7}
    again = gang("true", attempt=2)
    node.decide(
        AttemptPreempted(job_id=bound.job_id, attempt=bound.attempt, reason="service", cause="it gave way"), again
    )
    assert node.wait_gone(again) == {0: 0}


def test_data_workers_get_no_sigterm_but_are_gone_in_the_end(node: Node) -> None:
    source = """
import os, signal, sys, time
if os.fork() == 0:
    signal.signal(signal.SIGTERM, lambda *_: print('worker got SIGTERM', flush=True))
    print('worker', os.getpid(), flush=True)
    while True: time.sleep(0.02)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('daemon', os.getpid(), flush=True)
        while True: time.sleep(0.02)
    os._exit(0)
signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), sys.exit(0)))
while True: time.sleep(0.02)
"""
    bound = gang(*python(source))
    node.start_agent()
    node.decide(bound)
    node.wait_output(bound, "worker")
    output = node.wait_output(bound, "daemon")
    pids = [int(line.split()[1]) for line in output.splitlines()]
    assert all(alive(pid) for pid in pids)
    node.decide(stop(bound, grace_s=20))
    assert node.wait_gone(bound) == {0: 0}
    assert "SIGTERM" not in node.wait_output(bound, "worker")
    assert not any(alive(pid) for pid in pids)


def test_a_command_that_does_not_exist_fails_for_good_and_says_where_it_was_looked_for(node: Node) -> None:
    failed = refusal(node, gang("no-such-program", "--x", ranks=2))
    assert (failed.retryable, failed.blame) == (False, "job")
    for part in ("'no-such-program' does not exist on node node-1", "looked in PATH=/", "install it there"):
        assert part in failed.reason


def test_a_folder_as_command_is_not_said_to_be_absent(node: Node) -> None:
    assert "'/tmp' is a folder" in refusal(node, gang("/tmp", ranks=2)).reason


@pytest.mark.parametrize(
    ("content", "mode", "part"),
    [
        (None, 0, "does not exist on node node-1: looked for"),
        ("print()", 0o644, "chmod +x it, or name its interpreter, as in `python ./run`"),
        ("#!/no/such/interpreter\n", 0o755, "the interpreter that its first line names is not there"),
        ("print()", 0o755, "name its interpreter in the command"),
    ],
)
def test_a_file_that_cannot_be_executed_fails_for_good_and_says_why(
    node: Node, tmp_path: Path, content: str | None, mode: int, part: str
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    if content is not None:
        (code / "run").write_text(content)
        (code / "run").chmod(mode)
    stored = objects.open_store(tmp_path / "objects").put(bundle.pack(code).data)
    named = Code(uri=stored.uri, sha256=stored.sha256, size_bytes=stored.size_bytes, commit=None, dirty=False)
    failed = refusal(node, gang("./run", ranks=2, code=named))
    assert (failed.retryable, failed.blame) == (False, "job")
    assert part in failed.reason


@pytest.mark.parametrize(
    ("command", "env", "text"),
    [(("echo", "a\0b"), {}, "null byte"), (("true",), {"": "x"}, "name"), (("true",), {"A": "x\0"}, "null byte")],
    ids=["word", "variable's name", "variable"],
)
def test_words_that_no_program_can_be_given_looked_like_an_exit_with_127(
    node: Node, command: tuple[str, ...], env: dict[str, str], text: str
) -> None:
    node.start_agent()
    bound = gang(*command, env=env)
    node.decide(bound)
    failed = node.wait_fact(LaunchFailed, bound)
    assert text in failed.reason
    assert (failed.retryable, failed.blame) == (False, "job")


def test_a_rendezvous_port_in_use_is_named_and_may_be_tried_again(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        failed = refusal(node, gang("true", port=port))
    assert (failed.retryable, failed.blame) == (True, "neither")
    assert f"MASTER_PORT {port} is in use by another process on node node-1" in failed.reason
    assert "port_first" in failed.reason


@pytest.mark.parametrize("damage", ["flipped", "missing"])
def test_code_that_is_damaged_or_missing_is_never_run(node: Node, tmp_path: Path, damage: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "a.py").write_text("print()")
    stored = objects.open_store(tmp_path / "objects").put(bundle.pack(tmp_path / "code").data)
    path = Path(stored.uri.removeprefix("file://"))
    if damage == "missing":
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[-9] ^= 1
        path.write_bytes(data)
    named = Code(uri=stored.uri, sha256=stored.sha256, size_bytes=stored.size_bytes, commit=None, dirty=False)
    failed = refusal(node, gang("python", "a.py", code=named))
    assert (failed.retryable, failed.blame) == (True, "neither")
    assert ("has SHA-256" if damage == "flipped" else "does not exist") in failed.reason


def test_what_has_ended_before_the_agent_starts_is_not_launched(node: Node) -> None:
    over, stopped, lasting = (gang(*python("print('ran')"), job_id=f"job-{name}") for name in ("over", "stop", "live"))
    node.decide(over, stopped)
    node.decide(ended(over), stop(stopped, grace_s=1))
    node.decide(lasting)
    node.start_agent()
    assert node.wait_gone(lasting) == {0: 0}
    assert node.wait_gone(stopped) == {}
    assert [key.job_id for key in node.attempts()] == ["job-live"]
    assert not node.facts(RanksExited, over)


def test_rounds_of_a_term_that_is_not_open_bind_nothing(node: Node) -> None:
    void, valid = gang("true", job_id="job-void"), gang("true", job_id="job-valid")
    node.start_agent()
    node.decide(void, term=2)
    node.decide(valid)
    assert node.wait_gone(valid) == {0: 0}
    assert not node.facts(RanksStarted, void)


def test_an_agent_starts_from_the_newest_snapshot_that_is_not_damaged(node: Node) -> None:
    in_snapshot, not_read = gang("true", job_id="job-snapshot"), gang("true", job_id="job-before")
    preempted = gang("true", job_id="job-preempted")
    node.decide(not_read)  # as if it had ended: the snapshot does not have it, and stands behind this round
    reader = node.log.reader(DECISIONS)
    for _ in reader.read_to_end():
        pass
    position = reader.position
    reader.close()
    snapshot = BindingsSnapshot(
        meta=META,
        log_id=node.log_id,
        term=1,
        tick_index=1,
        decisions_index=position.index,
        decisions_offset=position.offset,
        live=(
            LiveAttempt(bound=codec.encode(preempted), stop=codec.encode(preemption(preempted, grace_s=1))),
            LiveAttempt(bound=codec.encode(in_snapshot), stop=None),
        ),
    )
    folder = node.home / "snapshots" / node.log_id
    folder.mkdir(parents=True)
    (folder / "bindings-1-1.avro").write_bytes(codec.encode(snapshot))
    (folder / "bindings-10-1.avro").write_bytes(codec.encode(snapshot)[:-3])
    later = gang("true", job_id="job-later")
    node.decide(later)
    node.start_agent()
    assert node.wait_gone(in_snapshot) == {0: 0}
    assert node.wait_gone(later) == {0: 0}
    assert not node.facts(RanksStarted, not_read)
    assert node.wait_gone(preempted) == {}
    assert not node.facts(RanksStarted, preempted)
    assert "bindings-10-1.avro is passed over" in node.stderr.read_text()


def test_a_second_agent_of_a_node_is_refused_and_told_the_way_out(node: Node) -> None:
    first = node.start_agent()
    node.wait_fact(NodeRegistered)
    second = subprocess.run(list(first.args), capture_output=True, text=True, check=False, timeout=30)  # type: ignore[arg-type]
    assert second.returncode == 4
    assert f"already runs in {node.home}/agents/node-1 (process {first.pid})" in second.stderr
    assert "another --node-id" in second.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "part"),
    [
        (("--home", "/proc/home"), 4, "cannot write to /proc/home/agents/node-1"),
        (("--gpus", "0"), 2, "--gpus 0: a node offers at least 1"),
        (("--node-id", "../x"), 2, "--node-id '../x'"),
        (("--log", "nonsense"), 2, "'nonsense' names no log"),
    ],
)
def test_what_an_agent_cannot_do_is_said_in_one_line(
    node: Node, arguments: tuple[str, ...], exit_code: int, part: str
) -> None:
    assert node.start_agent(*arguments).wait(30) == exit_code
    lines = node.stderr.read_text().splitlines()
    assert len(lines) == 1
    assert part in lines[0]


def test_an_agent_beats_on_the_partition_of_its_node(node: Node) -> None:
    node.start_agent()
    beat = wait_for(node.heartbeats, "heartbeat")[0]
    assert (beat.node_id, beat.sequence) == (NODE, 0)
    assert beat.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_ranks_get_nothing_of_the_agents_environment_that_may_be_secret(node: Node) -> None:
    bound = gang(*python("import os; print(sorted(os.environ))"), env={"MINE": "1", "RANK": "7"})
    node.start_agent(AWS_SECRET_ACCESS_KEY="s", HF_TOKEN="t", PYTHONPATH="/p", NCCL_DEBUG="INFO")
    node.decide(bound)
    names = node.wait_output(bound, "]")
    assert node.wait_gone(bound) == {0: 0}
    assert {"MINE", "NCCL_DEBUG", "PATH"} <= set(eval(names))
    assert not {"AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "PYTHONPATH"} & set(eval(names))


def test_python_is_that_of_the_agents_virtual_environment(node: Node) -> None:
    bound = gang(*python("import sys; print(sys.prefix)"))
    node.start_agent(PATH="/usr/bin:/bin")
    node.decide(bound)
    assert node.wait_output(bound, "\n").strip() == sys.prefix
    assert node.wait_gone(bound) == {0: 0}


def test_signals_that_the_agent_ignores_are_not_ignored_in_ranks(node: Node) -> None:
    bound = gang(*python("import signal; print(signal.getsignal(signal.SIGINT), signal.pthread_sigmask(0, []))"))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        node.start_agent()
    finally:
        signal.signal(signal.SIGINT, before)
    node.decide(bound)
    assert node.wait_gone(bound) == {0: 0}
    assert "default_int_handler" in (output := node.wait_output(bound, "\n"))
    assert "set()" in output


def test_an_agent_examines_its_node_when_asked_and_each_time_it_is_asked(node: Node) -> None:
    node.start_agent()
    for asked in (7, 8):
        node.decide(
            NodeCheckOrdered(node_id="another", check_index=99), NodeCheckOrdered(node_id=NODE, check_index=asked)
        )
        wait_for(lambda: [one.check_index for one in node.facts(NodeChecked)][-1:] == [asked], "report of a check")  # noqa: B023 - called at once
        found = node.facts(NodeChecked)[-1]
        assert found.healthy
        assert "GiB of disk free" in found.report
        assert "4 declared slots" in found.report
        assert found.meta.cause == f"control:{asked}"
    assert len(node.facts(NodeChecked)) == 2
