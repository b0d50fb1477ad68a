"""Specs: what they may say, and how a mistake is told, with its key and its line."""

from pathlib import Path

import pytest

from gangline.cli.spec import KEYS, MAX_SPEC_BYTES, RESOURCES, Source, SpecError, read_spec
from gangline.events.types import Elastic, JobSpec, Role
from gangline.schemas.errors import UsageError
from tests.cli.invoke import Gangline

WHOLE = """\
name = "digits"
queue = "vision"
command = ["python", "train.py"]
code = "."
priority = 5
retries = 1
max_runtime = "1.5h"
grace = "30s"
checkpoints = "kept"

[env]
EPOCHS = "3"

[resources]
gpus = 4
nodes = 2
gpu_type = ["H100", "H200"]
cpus = 1.5
memory = "16GiB"
"""


def parse(text: str, folder: Path = Path("/folder")) -> JobSpec:
    return Source(text, name="job.toml", folder=folder).asked().spec


def test_a_whole_spec_is_understood() -> None:
    asked = Source(WHOLE, name="job.toml", folder=Path("/folder")).asked()
    assert asked.code == Path("/folder")
    assert asked.spec == JobSpec(
        name="digits",
        queue="vision",
        command=("python", "train.py"),
        env={"EPOCHS": "3"},
        gpus=4,
        nodes=2,
        gpu_types=("H100", "H200"),
        cpu_milli=1500,
        memory_bytes=16 << 30,
        priority=5,
        retries=1,
        max_runtime_us=5_400_000_000,
        grace_us=30_000_000,
        checkpoints="file:///folder/kept",
    )


def test_a_short_spec_is_named_for_its_file() -> None:
    spec = parse("command = 'python -m train \"a b\"'\nresources.gpus = 1\n")
    assert (spec.name, spec.queue) == ("job", "default")
    assert spec.command == ("python", "-m", "train", "a b")


@pytest.mark.parametrize(
    ("gpus", "count", "milli"),
    [("0", 0, 1000), ("1", 1, 1000), ("8", 8, 1000), ("0.5", 1, 500), ("0.001", 1, 1), ("2.0", 2, 1000)],
)
def test_gpus_are_whole_ones_or_a_part_of_one(gpus: str, count: int, milli: int) -> None:
    spec = parse(f"command = ['true']\nresources.gpus = {gpus}\n")
    assert (spec.gpus, spec.gpu_milli) == (count, milli)


OPTIONS = """\
command = ["true"]
preemptible = false
held = true
after = ["job-a", "job-b"]
array = 10
array_parallel = 2
interactive = true
idle_timeout = "30m"
data = "2TiB"
notify = "https://hooks.example.org/x"
topology = { required = "pod", preferred = "node" }
elastic = { min = 8, max = 64, step = 8 }

[resources]
gpus = 16

[roles.actor]
ranks = 4
gpus = 0.5
cpus = 2
memory = "1GiB"
command = "python act.py"
"""


def test_a_spec_says_how_a_job_may_be_treated_and_what_it_waits_for() -> None:
    assert parse(OPTIONS) == JobSpec(
        name="job",
        queue="default",
        command=("true",),
        gpus=16,
        preemptible=False,
        held=True,
        after=("job-a", "job-b"),
        array=10,
        array_parallel=2,
        interactive=True,
        idle_timeout_us=1_800_000_000,
        data_bytes=2 << 40,
        notify=("https://hooks.example.org/x",),
        topology_required="pod",
        topology_preferred="node",
        elastic=Elastic(min_gpus=8, max_gpus=64, step_gpus=8),
        roles=(
            Role(
                name="actor",
                ranks=4,
                gpu_milli=500,
                cpu_milli=2000,
                memory_bytes=1 << 30,
                command=("python", "act.py"),
            ),
        ),
    )


def test_a_place_for_checkpoints_may_be_a_uri() -> None:
    assert parse("command=['true']\ncheckpoints='s3://b/c'\nresources.gpus=1\n").checkpoints == "s3://b/c"


DOCUMENTED = Path(__file__).parents[2] / "docs/specs.md"


def test_the_documented_spec_has_every_key_and_is_understood() -> None:
    text = DOCUMENTED.read_text().split("```toml\n")[1].split("```")[0]
    source = Source(text, name="spec.toml", folder=Path("/folder"))
    spec = source.asked().spec
    assert set(source.table) == {*KEYS, "resources"}
    assert set(source.table["resources"]) == set(RESOURCES)
    bare = parse("command = ['true']\nresources.gpus = 1\n")
    unset = {field for field in JobSpec.__struct_fields__ if getattr(spec, field) == getattr(bare, field)}
    assert unset == {"gpu_milli", "code"}, "a part of a GPU is gpus = 0.5, the code is stored by submit"


HEAD = "command = ['true']\n"
GPUS = HEAD + "\n[resources]\n"
BAD: dict[str, tuple[str, str]] = {  # the text, and how the message begins: its line, its key, ...
    "no TOML": ("name = \n", "1: this is no TOML"),
    "an open string": (HEAD + "name = 'a\n", "2: this is no TOML"),
    "an end too soon": (HEAD + "env = {", "2: this is no TOML"),
    "a key twice": ("name = 'a'\nname = 'b'\n", "2: this is no TOML: Cannot overwrite a value"),
    "an unknown key": ("# what\n\nqueu = 'a'\n" + HEAD, "3: queu: there is no such key: did you mean queue?"),
    "a key in the wrong table": (
        HEAD + "gpu = 1\n",
        "2: gpu: there is no such key: did you mean resources.gpus?",
    ),
    "a key like no other": (
        HEAD + "zzz = 1\n",
        "2: zzz: there is no such key: the keys are after, array",
    ),
    "an unknown resource": (
        GPUS + "gpus = 1\ncpu = 2\n",
        "5: resources.cpu: there is no such key: did you mean resources.cpus?",
    ),
    "a wrong type": (HEAD + "\npriority = 'high'\n", "3: priority: this is a whole number, not text"),
    "a truth for a number": (
        HEAD + "retries = true\n",
        "2: retries: this is a whole number, not true or false",
    ),
    "a number for text": (HEAD + "queue = 3\n", "2: queue: this is text, not a number"),
    "no text": (HEAD + "queue = ''\n", "2: queue: this is empty"),
    "too many retries": (
        HEAD + "retries = 1001\n",
        "2: retries: this is 1,001, but has to be at least 0 and at most 1,000",
    ),
    "less than no GPU": (GPUS + "gpus = -2\n", "4: resources.gpus: this is -2, but"),
    "more GPUs than can be counted": (
        GPUS + "gpus = 99999999999999999999\n",
        "4: resources.gpus: this is 99,999,999,999,999,999,999, but has to be at most 1,000,000",
    ),
    "a GPU and a half": (
        GPUS + "gpus = 1.5\n",
        "4: resources.gpus: this is 1.5, but only one GPU can be shared",
    ),
    "no number of GPUs": (GPUS + "gpus = nan\n", "4: resources.gpus: nan is not valid here"),
    "endless GPUs": (GPUS + "gpus = inf\n", "4: resources.gpus: inf is not valid here"),
    "too fine a part": (GPUS + "gpus = 0.0001\n", "4: resources.gpus: 0.0001 is not valid here"),
    "no nodes": (GPUS + "gpus = 1\nnodes = 0\n", "5: resources.nodes: this is 0, but has to be at least 1"),
    "uneven nodes": (
        GPUS + "gpus = 3\nnodes = 2\n",
        "5: resources.nodes: 3 GPUs do not spread evenly over 2 nodes",
    ),
    "a part of a GPU on several nodes": (
        GPUS + "gpus = 0.5\nnodes = 2\n",
        "5: resources.nodes: a part of a GPU lies on one node",
    ),
    "no CPUs": (GPUS + "gpus = 1\ncpus = 0\n", "5: resources.cpus: this is 0, but has to be more than 0"),
    "a bad unit": (
        GPUS + "gpus = 1\nmemory = '4Gb'\n",
        "5: resources.memory: '4Gb' is not valid here: write a number with one of B, kB",
    ),
    "no unit": (
        GPUS + "gpus = 1\nmemory = 4\n",
        "5: resources.memory: this is text with a unit, not a number",
    ),
    "no memory": (GPUS + "gpus = 1\nmemory = '0GiB'\n", "5: resources.memory: '0GiB' is too little"),
    "a negative time": (
        HEAD + "max_runtime = '-2h'\n",
        "2: max_runtime: '-2h' is not valid here: write a number with one of s, m, h, d",
    ),
    "no time": (HEAD + "max_runtime = '0s'\n", "2: max_runtime: '0s' is too little"),
    "a time beyond 64 bits": (HEAD + "grace = '99999999999999d'\n", "2: grace: '99999999999999d' is too much"),
    "a size beyond 64 bits": (
        GPUS + "gpus = 1\nmemory = '9999999999TiB'\n",
        "5: resources.memory: '9999999999TiB' is too much: ask for 1048576TiB at most",
    ),
    "a type that is none": (
        GPUS + "gpus = 1\ngpu_type = []\n",
        "5: resources.gpu_type: this is a type or a list of types",
    ),
    "no command": ("name = 'a'\n", "1: command: there is none"),
    "an empty command": ("command = []\n", "1: command: this is a program and its arguments"),
    "a command of numbers": ("command = ['sleep', 3]\n", "1: command: this is a program and its arguments"),
    "an open quote": ('command = "python \'a"\n', "1: command: this cannot be split into words"),
    "no gpus": (HEAD + "name = 'a'\n", "1: resources.gpus: there is none"),
    "no gpus in their table": (GPUS + "cpus = 1\n", "3: resources.gpus: there is none"),
    "resources that are no table": (HEAD + "resources = 3\n", "2: resources: this is a table"),
    "a variable that is no text": (HEAD + "[env]\nA = '1'\nB = 2\n", "4: env.B: this is text, not a number"),
    "a value over several lines": (
        HEAD + "[env]\nA = '''\n1\n'''\nB = [\n1\n]\n",
        "6: env.B: this is text, not a list",
    ),
    "an unknown topology": (
        HEAD + "\ntopology = {required = 'rack'}\n",
        "3: topology.required: this is 'rack', but has",
    ),
    "half an elastic": (HEAD + "[elastic]\nmin = 2\n", "2: elastic: there is no max: give it"),
    "a role's mistake": (HEAD + "\n[roles.actor]\nranks = 0\n", "4: roles.actor.ranks: this is 0, but has to be"),
    "a role with much of a GPU": (
        HEAD + "\n[roles.actor]\nranks = 2\ngpus = 2\n",
        "5: roles.actor.gpus: this is 2, but a rank of a role has at most one GPU",
    ),
    "no truth": (HEAD + "preemptible = 1\n", "2: preemptible: this is true or false, not a number"),
    "a place in a list": (HEAD + "after = ['a', 3]\n", "2: after[1]: this is text, not a number"),
    "an inline table": (HEAD + "\nresources = {gpus = -1}\n", "3: resources.gpus: this is -1"),
    "a NUL": ('command = ["a\\u0000"]\n', "1: command: this has a NUL character"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_told_with_its_key_and_line(case: str) -> None:
    text, message = BAD[case]
    with pytest.raises(SpecError) as raised:
        parse(text)
    assert str(raised.value).startswith(f"job.toml:{message}")
    assert raised.value.exit_code == 2


def test_a_file_that_is_not_utf8_is_told_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "job.toml").write_bytes(b"name = 'a'\nqueue = '\xff'\n")
    with pytest.raises(SpecError, match=r"job.toml:2: the file is not UTF-8"):
        read_spec(tmp_path / "job.toml")


def test_a_file_that_is_no_spec_is_not_read_whole(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"#" * (MAX_SPEC_BYTES + 1))
    with pytest.raises(SpecError, match="a spec has at most"):
        read_spec(tmp_path / "data")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_spec(tmp_path / "none.toml")


def test_an_elastic_spec_that_names_no_gpus_asks_for_its_most() -> None:
    spec = parse('command = "true"\n[elastic]\nmin = 2\nmax = 6\nstep = 2\n')
    assert (spec.gpus, spec.elastic) == (6, Elastic(min_gpus=2, max_gpus=6, step_gpus=2))


FLAGS: dict[str, tuple[list[object], str]] = {
    "less than none": (["--gpus", -1, "--", "true"], "--gpus: this is -1, but"),
    "no nodes": (["--nodes", 0, "--", "true"], "--nodes: this is 0, but has to be at least 1"),
    "a bad unit": (["--memory", "3x", "--", "true"], "--memory: '3x' is not valid here"),
    "a bad time": (["--max-runtime", "soon", "--", "true"], "--max-runtime: 'soon' is not valid here"),
    "only a least size": (["--min-gpus", 2, "--", "true"], "--max-gpus is missing"),
    "a least size of nothing": (["--min-gpus", 0, "--max-gpus", 2, "--", "true"], "--min-gpus: this is 0, but"),
    "no topology": (
        ["--topology-required", "rack", "--", "true"],
        "--topology-required: this is 'rack', but has to be",
    ),
    "no webhook": (["--notify", "ann@example.org", "--", "true"], "--notify: 'ann@example.org' is no URL"),
    "a webhook of no host": (["--notify", "http://", "--", "true"], "--notify: 'http://' is no URL"),
    "a webhook of a path": (["--notify", "https:///x", "--", "true"], "--notify: 'https:///x' is no URL"),
    "a webhook of no port": (["--notify", "http://a:b/x", "--", "true"], "--notify: 'http://a:b/x' is no URL"),
    "an array of nothing": (["--array", 0, "--", "true"], "--array: this is 0, but has to be at least 1"),
    "no idle time": (["--idle-timeout", "1", "--", "true"], "--idle-timeout: '1' is not valid here"),
    "no variable": (["--env", "A", "--", "true"], "--env A: write NAME=VALUE"),
    "nothing to run": (["--gpus", 1], "there is nothing to run"),
    "nothing behind the dashes": (["--gpus", 1, "--"], "-- COMMAND: this is a program and its arguments"),
    "a command without dashes": (["true"], "true cannot be read"),
}


@pytest.mark.parametrize("case", FLAGS)
def test_a_mistake_in_flags_names_the_flag_and_exits_with_2(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words, message = FLAGS[case]
    monkeypatch.chdir(tmp_path)
    ran = Gangline(monkeypatch, capsys)("submit", *words)
    assert ran.code == 2
    assert ran.err.startswith(f"gangline: {message}")
    assert ran.out == ""


ALL_FLAGS = (
    "--name n --queue q --gpus 4 --nodes 2 --gpu-type H100 --gpu-type H200 --cpus 1.5 --memory 1GiB --priority 5 "
    "--retries 1 --max-runtime 2h --grace 9s --checkpoints s3://b/c --env A=1 --topology-required pod "
    "--topology-preferred node --not-preemptible --held --after job-a --after job-b --array 10 --array-parallel 2 "
    "--interactive --idle-timeout 30m --data 2TiB --notify https://a.example.org --min-gpus 2 --max-gpus 8"
)


def test_every_field_of_a_job_has_a_flag_or_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The roles of a gang are tables of their own and stand in a spec; the rest has flags, too."""
    from typer.testing import CliRunner

    from gangline.cli import submit
    from gangline.cli.app import app
    from gangline.cli.spec import Asked

    found: list[Asked] = []
    monkeypatch.setattr(submit, "_submit", lambda asked, *_, **__: found.append(asked))
    ran = CliRunner().invoke(app, ["submit", *ALL_FLAGS.split(), "--code", ".", "--home", ".", "--", "train", "x"])
    assert ran.exit_code == 0, ran.output
    ((spec, code),) = found
    assert code == Path.cwd()
    bare = parse("command = ['true']\nresources.gpus = 1\n")
    unset = {field for field in JobSpec.__struct_fields__ if getattr(spec, field) == getattr(bare, field)}
    assert unset == {"gpu_milli", "code", "roles"}, "a part of a GPU is --gpus 0.5, the code is stored by submit"
    assert (spec.preemptible, spec.after, spec.data_bytes) == (False, ("job-a", "job-b"), 2 << 40)
    assert (spec.topology_required, spec.topology_preferred) == ("pod", "node")
