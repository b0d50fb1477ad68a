"""openb's tasks and nodes are read as they are, and what cannot be is named with its row and column."""

from pathlib import Path

import pytest

from gangline.events.types import MIB
from gangline.schemas.errors import NotFound
from gangline.simulator.openb import BadTrace, Machine, Task, machines, tasks

PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
NODES = "sn,cpu_milli,memory_mib,gpu,model"


def written(folder: Path, header: str, *lines: str) -> Path:
    path = folder / "trace.csv"
    path.write_text("\n".join([header, *lines, ""]))
    return path


def test_a_task_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        PODS,
        "openb-pod-0001,6000,12288,1,460,V100M32|V100M16,LS,Running,427061,12902960,427061",
        "openb-pod-0002,4000,1024,0,0,,BE,Pending,5,,",
        "",
    )
    assert list(tasks(path)) == [
        Task(
            name="openb-pod-0001",
            cpu_milli=6000,
            memory_bytes=12288 * MIB,
            gpus=1,
            gpu_milli=460,
            gpu_types=("V100M16", "V100M32"),
            created_s=427061,
            deleted_s=12902960,
        ),
        Task(
            name="openb-pod-0002",
            cpu_milli=4000,
            memory_bytes=1024 * MIB,
            gpus=0,
            gpu_milli=0,
            gpu_types=(),
            created_s=5,
        ),
    ]


def test_a_node_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, NODES, "openb-node-0000,64000,262144,2,P100", "cpu-0,64000,262144,0,")
    assert list(machines(path)) == [
        Machine(name="openb-node-0000", cpu_milli=64000, memory_bytes=262144 * MIB, gpus=2, gpu_type="P100"),
        Machine(name="cpu-0", cpu_milli=64000, memory_bytes=262144 * MIB, gpus=0, gpu_type=""),
    ]


def test_times_may_be_missing_altogether(tmp_path: Path) -> None:
    path = written(tmp_path, "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec", "a,1,2,1,1000,")
    (task,) = tasks(path)
    assert (task.created_s, task.deleted_s, task.milli) == (None, None, 1000)


BAD_TASKS = {
    "a,-5,1,1,1000,,,,0,1,": "row 2: cpu_milli is '-5', but it has to be 0 to 10,000,000",
    "a,5,1,1000000,1000,,,,0,1,": "row 2: num_gpu is '1000000', but it has to be 0 to 1,024",
    "a,5,1,1,0,,,,0,1,": "row 2: gpu_milli is '0', but it has to be 1 to 1,000",
    "a,5,1,1,1001,,,,0,1,": "row 2: gpu_milli is '1001', but",
    "a,5,1,2,500,,,,0,1,": "row 2: gpu_milli is '500', but a task of 2 GPUs takes whole ones",
    "a,5,1.5,1,500,,,,0,1,": "row 2: memory_mib is '1.5', but it has to be a whole number",
    "a,,1,1,500,,,,0,1,": "row 2: cpu_milli is '', but it has to be a whole number",
    "a,²,1,1,500,,,,0,1,": "row 2: cpu_milli is '²', but it has to be a whole number",
    ",5,1,1,500,,,,0,1,": "row 2: name is '', but it is empty",
    "a,5,1,1,500,,,,-9,1,": "row 2: creation_time is '-9', but",
    "a,5,1,1,500,,,,9,1,": "row 2: deletion_time is '1', but it was created at 9",
    "a,5,1": "row 2: it has 3 fields, but the header 11 columns",
    '"a': "row 2: unexpected end of data",
    '"a\nb",5,1,1,500,,,,0,1,': "row 2: a field spans lines",
}


@pytest.mark.parametrize("line", BAD_TASKS)
def test_a_bad_task_is_named_by_row_and_column(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadTrace) as raised:
        list(tasks(written(tmp_path, PODS, line)))
    assert BAD_TASKS[line] in str(raised.value)
    assert "trace.csv" in str(raised.value)


def test_rows_before_a_bad_one_are_read(tmp_path: Path) -> None:
    reading = tasks(written(tmp_path, PODS, "a,5,1,1,500,,,,0,1,", "b,5,1,1,oops,,,,0,1,"))
    assert next(reading).name == "a"
    with pytest.raises(BadTrace, match="row 3: gpu_milli is 'oops'"):
        next(reading)


def test_a_task_of_a_name_that_was_there_before_is_named(tmp_path: Path) -> None:
    lines = ("a,5,1,1,500,,,,0,1,", "b,5,1,1,500,,,,0,1,", "a,5,1,1,500,,,,2,3,")
    with pytest.raises(BadTrace, match="row 4: name is 'a', but the task of row 2 has that name: mend that row"):
        list(tasks(written(tmp_path, PODS, *lines)))


def test_a_node_named_twice_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="row 3: sn is 'n-1', but the node of row 2 has that name"):
        list(machines(written(tmp_path, NODES, "n-1,1,1,1,A", "n-1,1,1,1,A")))


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("name,cpu_milli", "row 1: column memory_mib is missing; the header has name, cpu_milli, and needs name,"),
        (PODS + ",name", "row 1: column 'name' appears twice"),
    ],
)
def test_a_bad_header_is_named(tmp_path: Path, header: str, said: str) -> None:
    with pytest.raises(BadTrace) as raised:
        list(tasks(written(tmp_path, header)))
    assert said in str(raised.value)


def test_what_is_no_csv_at_all_is_told(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    with pytest.raises(NotFound, match="there is no file"):
        list(tasks(path))
    path.write_bytes(b"")
    with pytest.raises(BadTrace, match="is empty: it begins with a header of name"):
        list(tasks(path))
    path.write_bytes(b"\x1f\x8b\x08\xff\xfe")
    with pytest.raises(BadTrace, match="is not UTF-8 text"):
        list(tasks(path))
    with pytest.raises(BadTrace, match="cannot be read"):
        list(tasks(tmp_path))
