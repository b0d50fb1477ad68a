"""`gangline simulate` compares policies on a trace, keeps a log that is a trace again, and says what is wrong."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.invoke import Gangline

SLICE = Path(__file__).parents[1] / "simulator/fixtures/philly_slice.csv"
CLUSTER = ("--divide", "9", "--nodes", "8", "--pods", "2")
STRICT = '[policy]\norder = "submission"\nhead_blocks = true\nrules = []\n'


@pytest.fixture
def gangline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gangline:
    return Gangline(monkeypatch, capsys)


@pytest.fixture
def strict(tmp_path: Path) -> Path:
    path = tmp_path / "strict.toml"
    path.write_text(STRICT)
    return path


def test_policies_stand_side_by_side_with_the_source_of_the_trace(
    gangline: Gangline, tmp_path: Path, strict: Path
) -> None:
    other = tmp_path / "other.toml"
    other.write_text('[policy]\nwithout = ["consolidation"]\n')
    page = tmp_path / "page.html"
    done = gangline("simulate", SLICE, *CLUSTER, "--policy", strict, "--policy", other, "--report", page)
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert [line.split() for line in lines[:2]] == [["policy", "strict", "other"], ["jobs", "400", "400"]]
    assert max(len(line) for line in lines[:-2]) <= 80
    assert "smaller of the GPUs that were up and those asked for" in lines[-2]
    assert "CC BY 4.0" in lines[-1]
    assert page.read_text().count("<svg") == 5


def test_json_holds_a_summary_and_waits_by_size(gangline: Gangline, strict: Path) -> None:
    done = gangline("simulate", SLICE, *CLUSTER, "--pooled", "--policy", strict, "--json")
    (policy,) = json.loads(done.out)["policies"]
    assert policy["summary"]["succeeded"] == 400
    assert policy["summary"]["wait_mean_s"] == pytest.approx(4181.84, abs=0.01)
    assert sum(row["jobs"] for row in policy["by_size"]) == 400
    assert "CC BY 4.0" in json.loads(done.out)["attribution"]


def test_a_policy_whose_queues_are_not_the_workload_s_says_why_it_rejects(gangline: Gangline, tmp_path: Path) -> None:
    policy = tmp_path / "own.toml"
    policy.write_text("[queues.mine]\nguarantee = 8\n")
    done = gangline("simulate", SLICE, *CLUSTER, "--days", "1", "--policy", policy)
    assert done.code == 0, done.err
    assert re.search(r"^rejected by own, as philly-\d+: queue is '.+', but the queues are mine", done.out, re.MULTILINE)


@pytest.mark.parametrize("fault", ['node = "node-99"', 'pod = "pod-99"', 'job = "nobody"'])
def test_a_fault_of_what_is_not_there_names_the_script(gangline: Gangline, tmp_path: Path, fault: str) -> None:
    script = tmp_path / "faults.toml"
    script.write_text(f'[[fault]]\nat = "1h"\n{fault}\n')
    done = gangline("simulate", SLICE, *CLUSTER, "--faults", script)
    assert done.code == 2
    assert f"{script}: fault 1: there is no {fault.split(maxsplit=1)[0]} '" in done.err


@pytest.mark.slow
def test_a_log_that_was_kept_is_a_trace(gangline: Gangline, tmp_path: Path, strict: Path) -> None:
    kept = tmp_path / "kept"
    first = gangline("simulate", SLICE, *CLUSTER, "--policy", strict, "--keep-log", kept, "--json")
    assert first.code == 0, first.err
    again = gangline("simulate", kept, "--policy", strict, "--json")
    assert again.code == 0, again.err
    before, after = (json.loads(done.out)["policies"][0]["summary"] for done in (first, again))
    assert after["jobs"] == before["jobs"]
    assert after["wait_mean_s"] == pytest.approx(before["wait_mean_s"], rel=0.05)


def test_faults_are_read_from_a_script(gangline: Gangline, tmp_path: Path, strict: Path) -> None:
    script = tmp_path / "faults.toml"
    script.write_text('[[fault]]\nat = "30m"\nnode = "node-3"\ndown = "2h"\n[[fault]]\nat = "1h"\njob = "philly-3"\n')
    done = gangline("simulate", SLICE, *CLUSTER, "--policy", strict, "--faults", script, "--json")
    assert json.loads(done.out)["policies"][0]["summary"]["lost_gpu_hours"] > 0


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('[[fault]]\nat = "1h"\n', 1, "names one of node, pod and job"),
        ('[[fault]]\nat = "1h"\nnode = "node-1"\npod = "pod-1"\n', 1, "this one node and pod"),
        ('[[fault]]\nat = "1h"\npod = "pod-1"\ngpu = 1\n', 4, "gpu goes with node"),
        ('[[fault]]\nat = "1h"\njob = "a"\ndown = "1h"\n', 4, "its job goes on by itself"),
        ('[[fault]]\nat = "soon"\nnode = "node-1"\n', 2, "'soon' is not valid"),
        ('[[fault]]\nnode = "node-1"\n', 1, "there is no at"),
        ('[fault]\nat = "1h"\nnode = "x"\nhow = 1\n', 4, "no such key"),
    ],
)
def test_a_fault_that_cannot_be_is_named_with_its_line(
    gangline: Gangline, tmp_path: Path, text: str, line: int, said: str
) -> None:
    script = tmp_path / "faults.toml"
    script.write_text(text)
    done = gangline("simulate", SLICE, *CLUSTER, "--faults", script)
    assert done.code == 2
    assert f"faults.toml:{line}:" in done.err
    assert said in done.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "one of a trace, --mix, and --scenario"),
        ((SLICE, "--mix"), "one of a trace, --mix, and --scenario"),
        ((SLICE, "--scenario", "x.toml"), "leave out the trace"),
        ((SLICE, "--check"), "--check goes with --scenario"),
        ((SLICE, "--node-list", "gone.csv"), "--node-list goes with an openb trace, not with a Philly trace"),
        (("--mix", "--divide", "2"), "--divide goes with a Philly trace or an openb trace, not with --mix"),
        (("--scenario", "x.toml", "--policy", "y.toml"), "write [policy] into its file"),
        ((SLICE, "--nodes", "4", "--pods", "5"), "4 nodes cannot lie in 5 pods"),
        ((SLICE, "--report", "nowhere/page.html"), "cannot be written"),
        ((SLICE, "--days", "0"), "at least 1"),
        (("--mix", "--load", "0"), "--load"),
        (("--mix", "--load", "nan"), "--load"),
        (("--mix", "--policy", "a/x.toml", "--policy", "b/x.toml"), "called 'x'"),
        (("--mix", "--policy", "x.toml", "--policy", "y.toml", "--keep-log", "log"), "name one policy"),
    ],
)
def test_usage_that_makes_no_sense_is_refused(
    gangline: Gangline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[object, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("a", "b", "."):
        (tmp_path / folder).mkdir(exist_ok=True)
        for name in ("x.toml", "y.toml"):
            (tmp_path / folder / name).write_text("")
    done = gangline("simulate", *words)
    assert done.code == 2, done.err
    assert said in done.err


def test_a_job_larger_than_the_cluster_is_named_with_its_row(gangline: Gangline) -> None:
    done = gangline("simulate", SLICE, "--nodes", "1")
    assert done.code == 2
    assert "num_gpus" in done.err
    assert "row" in done.err


def test_a_trace_that_is_not_there_is_named(gangline: Gangline, tmp_path: Path) -> None:
    done = gangline("simulate", tmp_path / "gone.csv")
    assert done.code == 3
    assert "gone.csv" in done.err


@pytest.fixture
def openb(tmp_path: Path) -> tuple[Path, Path]:
    """Return a list of tasks and one of nodes."""
    pods, nodes = tmp_path / "pods.csv", tmp_path / "nodes.csv"
    pods.write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time\n"
        "a,4000,1024,1,500,,0,600\nb,4000,1024,2,1000,T4,60,900\nc,1000,1024,0,0,,90,400\n"
    )
    nodes.write_text("sn,cpu_milli,memory_mib,gpu,model\nn-1,64000,262144,2,T4\n")
    return pods, nodes


def test_a_list_of_openb_tasks_needs_its_nodes(gangline: Gangline, openb: tuple[Path, Path]) -> None:
    pods, nodes = openb
    assert "--node-list" in gangline("simulate", pods).err
    done = gangline("simulate", pods, "--node-list", nodes, "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["policies"][0]["summary"]["succeeded"] == 3
    assert "openb" in found["attribution"]


@pytest.mark.parametrize(
    ("option", "instead"), [(("--nodes", "4"), "those of --node-list"), (("--pooled",), "in one queue as it is")]
)
def test_an_option_that_says_nothing_about_a_list_of_openb_tasks_is_refused(
    gangline: Gangline, openb: tuple[Path, Path], option: tuple[str, ...], instead: str
) -> None:
    pods, nodes = openb
    done = gangline("simulate", pods, "--node-list", nodes, *option)
    assert done.code == 2
    assert f"{option[0]} goes with a Philly trace" in done.err
    assert instead in done.err


@pytest.mark.parametrize(
    ("task", "said"),
    [
        ("4000,1024,3,1000,,0,600", "num_gpu is '3', but no node has more than 2"),
        ("4000,1024,1,500,A10,0,600", "gpu_spec is 'A10', but the nodes have T4"),
        ("70000,1024,1,500,T4,0,600", "cpu_milli is '70000', but no node with T4, 1 GPUs has more than 64,000"),
        ("1000,300000,0,0,,0,600", "memory_mib is '300000', but no node with 1,000 thousandths of a CPU has more than"),
    ],
)
def test_a_task_that_no_node_could_take_is_named_with_row_and_column(
    gangline: Gangline, openb: tuple[Path, Path], task: str, said: str
) -> None:
    pods, nodes = openb
    pods.write_text(f"{pods.read_text()}d,{task}\n")
    done = gangline("simulate", pods, "--node-list", nodes)
    assert done.code == 2
    assert f"row 5: {said}" in done.err
