"""The packing experiment is what it says, and its references do what their papers say."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.options import TRACES
from benchmarks.packing_references import BestFit, Fgd, Random, fitting
from benchmarks.packing_world import KINDS, Trace, arrivals, fleet_of, kind_of, read, run
from gangline.events.types import MIB
from gangline.scheduler.fit import Choice
from gangline.scheduler.fleet import Fleet
from gangline.simulator.openb import BadTrace, Machine, Task

POD_HEADER = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec"
NODE_HEADER = "sn,cpu_milli,memory_mib,gpu,model"


def task(name: str, gpus: int, milli: int, cpu: int = 1000, *types: str) -> Task:
    return Task(name=name, cpu_milli=cpu, memory_bytes=MIB, gpus=gpus, gpu_milli=milli, gpu_types=types)


def machine(name: str, gpus: int, gpu_type: str = "A", cpu: int = 32_000) -> Machine:
    return Machine(name=name, cpu_milli=cpu, memory_bytes=1024 * MIB, gpus=gpus, gpu_type=gpu_type)


SMALL = Trace(
    tuple(
        task(f"t-{place:03}", *shape, *(("B",) if place % 6 == 5 else ()))
        for place, shape in enumerate(
            [(1, 460, 3000), (1, 810, 8000), (1, 1000, 9000), (2, 1000, 16000), (0, 0, 500), (1, 230, 1000)] * 7
        )
    ),
    tuple(machine(f"m-{place}", 2 + 2 * (place % 2), "AB"[place % 2]) for place in range(10)),
)


def written(folder: Path) -> list[str]:
    """Write the small trace and return the options that name it."""
    pods, nodes = folder / "pods.csv", folder / "nodes.csv"
    rows = [
        f"{one.name},{one.cpu_milli},{one.memory_bytes // MIB},{one.gpus},{one.gpu_milli},{'|'.join(one.gpu_types)}"
        for one in SMALL.tasks
    ]
    pods.write_text("\n".join([POD_HEADER, *rows]))
    rows = [f"{one.name},{one.cpu_milli},{one.memory_bytes // MIB},{one.gpus},{one.gpu_type}" for one in SMALL.machines]
    nodes.write_text("\n".join([NODE_HEADER, *rows]))
    return ["--pods", str(pods), "--nodes", str(nodes)]


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    _, pods, _, nodes = written(tmp_path)
    assert read(Path(pods), Path(nodes)) == SMALL


def test_every_task_arrives_before_any_clone_and_demand_stops_at_130_percent() -> None:
    arriving = arrivals(SMALL, 1)
    assert sorted(arriving[: len(SMALL.tasks)], key=lambda one: one.name) == list(SMALL.tasks)
    asked = sum(one.milli for one in arriving)
    assert 1.3 * SMALL.capacity_milli - 2000 < asked <= 1.3 * SMALL.capacity_milli
    assert len(arriving) > len(SMALL.tasks)
    assert arriving == arrivals(SMALL, 1) != arrivals(SMALL, 2)


def test_the_seed_names_the_nodes() -> None:
    first, second = (fleet_of(SMALL, seed).devices.tolist() for seed in (1, 2))
    assert first != second
    assert sorted(first) == sorted(second)


class First:
    """Takes the first node that fits."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def choose(self, one: Task) -> Choice | None:
        rows = np.flatnonzero(fitting(self._fleet, one))
        if not rows.size:
            return None
        columns = np.flatnonzero(self._fleet.free[rows[0]] >= one.gpu_milli)[: one.gpus]
        return Choice(int(rows[0]), tuple(columns.tolist()))


def test_allocation_is_read_when_the_demand_reaches_its_marks() -> None:
    trace = Trace(tuple(task(f"t-{place}", 1, 1000) for place in range(4)), (machine("m", 4),))
    outcome = run(First(fleet := fleet_of(trace, 1)), fleet, [*trace.tasks, trace.tasks[0]], 4000)
    assert outcome.allocated_percent == (100.0, 100.0)
    outcome = run(First(fleet := fleet_of(trace, 1)), fleet, [task("h", 1, 600), *trace.tasks], 4000)
    assert outcome.allocated_percent == (90.0, 90.0)
    assert outcome.accepted == {"cpu": 1.0, "fraction": 1.0, "one": 0.75, "several": 1.0}
    assert outcome.arrivals == 5


def test_a_rule_that_takes_what_is_not_free_is_caught() -> None:
    class Greedy:
        def choose(self, _one: Task) -> Choice | None:
            return Choice(0, (0,))

    trace = Trace((task("t", 1, 600),), (machine("m", 2),))
    with pytest.raises(AssertionError, match="more than it holds"):
        run(Greedy(), fleet_of(trace, 1), trace.tasks * 2, 2000)


def plain_fragment(free: list[int], cpu: int, gpu_type: str, tasks: list[Task]) -> float:
    """Return the expected fragment of a node as the paper defines it; every task's shape is known."""
    found = 0.0
    for one in tasks:
        enough = [share for share in free if share >= one.gpu_milli]
        barred = bool(one.gpu_types) and gpu_type not in one.gpu_types
        if one.gpus == 0 or barred or cpu < one.cpu_milli or len(enough) < one.gpus:
            found += sum(free)
        else:
            found += sum(share for share in free if share < one.gpu_milli)
    return found / len(tasks)


def test_fgd_takes_the_placement_after_which_least_is_fragmented() -> None:
    # Few enough, and each shape often enough, that all are known.
    tasks = list(SMALL.tasks)
    fleet = fleet_of(SMALL, 3)
    rule = Fgd(fleet, tasks)
    for one in arrivals(SMALL, 3)[:90]:
        expected: list[tuple[int, int, tuple[int, ...]]] = []
        for row in np.flatnonzero(fitting(fleet, one)).tolist():
            free, cpu = fleet.free[row].tolist(), int(fleet.cpu_free[row])
            gpu_type = fleet.types[fleet.type_index[row]]
            enough = [column for column, share in enumerate(free) if share >= one.gpu_milli]
            fraction = one.gpus == 1 and one.gpu_milli < 1000
            for columns in [(column,) for column in enough] if fraction else [tuple(enough[: one.gpus])]:
                after = [share - one.gpu_milli * (column in columns) for column, share in enumerate(free)]
                gain = plain_fragment(free, cpu, gpu_type, tasks) - plain_fragment(
                    after, cpu - one.cpu_milli, gpu_type, tasks
                )
                expected.append((-int(100 / (1 + math.exp(-gain / 1000))), row, columns))
        choice = rule.choose(one)
        assert choice == (Choice(*min(expected)[1:]) if expected else None)
        if choice is not None:
            fleet.take(choice.row, choice.columns, one.gpu_milli, one.cpu_milli, one.memory_bytes)


def test_best_fit_takes_the_node_and_device_with_the_least_left() -> None:
    trace = Trace((), (machine("m-1", 4), machine("m-2", 2), machine("m-3", 2, cpu=1000)))
    fleet = fleet_of(trace, 1)
    (two,) = [row for row in range(3) if fleet.devices[row] == 2 and fleet.cpu_free[row] == 32_000]
    fleet.take(two, (1,), 300, 0, 0)
    assert BestFit(fleet).choose(task("t", 1, 500, 2000)) == Choice(two, (1,))
    assert BestFit(fleet).choose(task("t", 1, 800, 2000)) == Choice(two, (0,))
    assert BestFit(fleet).choose(task("t", 8, 1000)) is None


def test_random_takes_any_node_and_device_that_fits() -> None:
    trace = Trace((), (machine("m-1", 2), machine("m-2", 3), machine("m-3", 0)))
    fleet = fleet_of(trace, 1)
    rule = Random(fleet, seed=1)
    taken = {rule.choose(task("t", 1, 500)) for _ in range(200)}
    rows = {int(fleet.devices[row]): row for row in range(3)}
    assert taken == {Choice(rows[gpus], (column,)) for gpus in (2, 3) for column in range(gpus)}


def test_each_rule_accepts_whatever_fits_and_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["packing", *written(tmp_path), "--seeds", "1,2", "--json"]) == 0
    figures = {figure["name"]: figure for figure in json.loads(capsys.readouterr().out)["figures"]}
    allocated = {f"packing.{rule}_{mark}" for rule in ("random", "best_fit", "fgd", "default") for mark in (100, 130)}
    accepted = {f"packing.accepted_{kind}_vs_fgd" for kind in KINDS}
    assert set(figures) == allocated | accepted | {"packing.placement_ms"}
    assert all(50 < figures[name]["value"] <= 100 for name in allocated)
    assert figures["packing.placement_ms"]["value"] > 0
    assert {name: (figure["goal"]) for name, figure in figures.items() if figure["goal"] is not None} == {
        "packing.default_100": 96.0,
        "packing.default_130": 96.1,
        "packing.placement_ms": 0.5,
        **dict.fromkeys(accepted, 0.0),
    }


def test_the_same_seeds_give_the_same_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options, reports = written(tmp_path), []
    for _ in range(2):
        assert main(["packing", *options, "--seeds", "5", "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)["figures"]
        reports.append([figure for figure in figures if figure["unit"] != "ms"])
    assert reports[0] == reports[1]


def test_without_a_trace_every_figure_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(TRACES, raising=False)
    assert main(["packing", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)["figures"]
    assert len(figures) == 13
    assert all(figure["value"] is None and f"{TRACES}=FOLDER" in figure["reference"] for figure in figures)


@pytest.mark.parametrize(
    ("pods", "nodes", "said"),
    [
        ("a,1,1,1000000,1000,", "m,1,1,8,A", "pods.csv, row 2: num_gpu is '1000000', but it has to be 0 to 1,024"),
        ("a,1,-1,1,1000,", "m,1,1,8,A", "pods.csv, row 2: memory_mib is '-1', but"),
        ("a,1,1,0,0,", "m,1,1,8,A", "pods.csv: no task asks for a GPU"),
        ("a,1,1,1,1000,", "m,1,1,0,", "nodes.csv: no node has a GPU"),
        ("a,1,1,1,1000,", "m,1,1,8", "nodes.csv, row 2: it has 4 fields"),
    ],
)
def test_bad_input_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pods: str, nodes: str, said: str
) -> None:
    (tmp_path / "pods.csv").write_text(f"{POD_HEADER}\n{pods}\n")
    (tmp_path / "nodes.csv").write_text(f"{NODE_HEADER}\n{nodes}\n")
    options = ["--pods", str(tmp_path / "pods.csv"), "--nodes", str(tmp_path / "nodes.csv")]
    assert main(["packing", *options]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err.splitlines()[-1]


def test_tasks_too_small_to_fill_the_cluster_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.packing_world.MAX_ARRIVALS", 50)
    with pytest.raises(BadTrace, match="do not fill the cluster"):
        arrivals(Trace((task("t", 1, 1),), (machine("m", 8),)), 1)


def test_kinds_tell_tasks_apart() -> None:
    shapes = [(0, 0), (1, 999), (1, 1000), (2, 1000)]
    assert [kind_of(task("t", *shape)) for shape in shapes] == list(KINDS)
