"""The Philly trace is read as it is, and what cannot be is refused with its row and column."""

from pathlib import Path

import pytest

from gangline.schemas.errors import NotFound
from gangline.simulator.csv_rows import BadTrace
from gangline.simulator.philly import PhillyJob, jobs

SLICE = Path(__file__).parent / "fixtures/philly_slice.csv"
HEADER = "timestamp,duration,num_gpus,gpu_time,cluster\n"
GOOD = "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_a_row_becomes_a_job(tmp_path: Path) -> None:
    assert jobs(trace(tmp_path, HEADER + GOOD)) == [
        PhillyJob(row=0, arrival_s=38 * 86_400 + 7 * 3600 + 115, duration_us=66_000_000, gpus=1, cluster="11cb48")
    ]


def test_rows_are_counted_from_0_in_the_order_of_the_file() -> None:
    found = jobs(SLICE)
    assert [job.row for job in found] == list(range(400))
    assert max(job.gpus for job in found) == 16


def test_an_empty_line_at_the_end_is_no_job(tmp_path: Path) -> None:
    assert len(jobs(trace(tmp_path, HEADER + GOOD + "\n"))) == 1


@pytest.mark.parametrize(
    ("row", "column", "shown"),
    [
        ("2017-08-31 23:59:59,66.0,1,66.0,a", "timestamp", "2017-08-31 23:59:59"),
        ("-5,66.0,1,66.0,a", "timestamp", "-5"),
        ("2017-10-09 07:01:55,-66.0,1,66.0,a", "duration", "-66.0"),
        ("2017-10-09 07:01:55,0,1,66.0,a", "duration", "0"),
        ("2017-10-09 07:01:55,nan,1,66.0,a", "duration", "nan"),
        ("2017-10-09 07:01:55,1e99,1,66.0,a", "duration", "1e99"),
        ("2017-10-09 07:01:55,soon,1,66.0,a", "duration", "soon"),
        ("2017-10-09 07:01:55,66.0,1000000,66.0,a", "num_gpus", "1000000"),
        ("2017-10-09 07:01:55,66.0,0,66.0,a", "num_gpus", "0"),
        ("2017-10-09 07:01:55,66.0,-1,66.0,a", "num_gpus", "-1"),
        ("2017-10-09 07:01:55,66.0,1,66.0,", "cluster", "''"),
        ("2017-10-09 07:01:55,66.0,1,66.0,a/b", "cluster", "a/b"),
        ("9999-01-01 00:00:00,66.0,1,66.0,a", "timestamp", "9999-01-01 00:00:00"),
    ],
)
def test_what_cannot_be_is_refused_with_file_row_column_and_value(
    tmp_path: Path, row: str, column: str, shown: str
) -> None:
    with pytest.raises(BadTrace) as caught:
        jobs(trace(tmp_path, HEADER + GOOD + row + "\n"), gpus_most=4_096)
    assert all(part in str(caught.value) for part in ("trace.csv", "row 3", column, shown))


def test_a_job_larger_than_the_cluster_is_named_with_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="4,096"):
        jobs(trace(tmp_path, HEADER + "2017-10-09 07:01:55,66.0,4097,66.0,a\n"), gpus_most=4_096)


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="num_gpus"):
        jobs(trace(tmp_path, "timestamp,duration,cluster\n"))


def test_a_trace_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match=r"trace\.csv has a header and no rows"):
        jobs(trace(tmp_path, HEADER))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere\.csv"):
        jobs(tmp_path / "nowhere.csv")
