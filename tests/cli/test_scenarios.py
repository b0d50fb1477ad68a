"""Scenarios as an operator meets them: the documented example, every key in its page, and bad files by line and key."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest

from gangline.cli import scenario_events, scenario_file, scenario_jobs
from gangline.simulator.scenario import Expectation
from tests.cli.invoke import Gangline

PAGE = (Path(__file__).parents[2] / "docs/scenarios.md").read_text()
EXAMPLE = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0]


@pytest.fixture
def gangline(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Gangline:
    return Gangline(monkeypatch, capsys)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "reclaim.toml"
    path.write_text(EXAMPLE)
    return path


def test_the_example_of_the_page_comes_out_as_it_says(gangline: Gangline, example: Path) -> None:
    done = gangline("simulate", "--scenario", example, "--check")
    assert (done.code, done.out) == (0, f"{example}: as expected\n"), done.err


def test_the_output_that_the_page_shows_is_what_is_printed(gangline: Gangline, example: Path) -> None:
    done = gangline("simulate", "--scenario", example)
    assert done.code == 0, done.err
    printed = [line.rstrip() for line in done.out.splitlines()]
    for line in re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)[0].splitlines():
        begins = line.removesuffix(" ...")
        assert any(one.startswith(begins) for one in printed), line


def test_json_has_every_round_and_what_the_page_says_of_it(gangline: Gangline, example: Path) -> None:
    done = gangline("simulate", "--scenario", example, "--json")
    found = json.loads(done.out)
    assert found["unexpected"] == []
    ordered = next(one for one in found["rounds"] if one["victims"])
    assert ordered["victims"] == [{"name": "sweep", "reason": "reclaim", "claimant": "retrain"}]
    assert ordered["held"] == {"retrain": ["node-1:0-7", "node-2:0-7"]}
    keys = {"at_s", "jobs", "victims", "held", "reserved", "refused"}
    assert all(set(one) == keys for one in found["rounds"])
    for key in (*keys, *ordered["jobs"][0], *found):
        assert f"`{key}`" in PAGE


def keys() -> Iterable[str]:
    """Return every key that a scenario may have."""
    yield from scenario_file._KEYS
    yield from scenario_jobs._NODE
    yield from scenario_jobs._TIMED
    yield from scenario_jobs._ATTEMPT
    for deed, (fields, _) in scenario_events.DEEDS.items():
        yield deed
        yield from fields
    for field in msgspec.structs.fields(Expectation):
        yield field.name.replace("at_us", "at")


@pytest.mark.parametrize("key", sorted({*keys()} - {"path"}))
def test_the_page_names_every_key(key: str) -> None:
    assert re.search(rf"[`\[.]{key}[`\]. :=]", PAGE), f"docs/scenarios.md says nothing of {key}"


BAD = {
    "a key that is none": ("guarantee = 24", "guarante = 24", "queues.production.guarante: there is no such key"),
    "a negative number": ("gpus = 16\nsaves_in", "gpus = -3\nsaves_in", "jobs.sweep.gpus: this is -3"),
    "no duration": ('"10h"', '"ten hours"', "jobs.serving.running.since: 'ten hours' is not valid"),
    "a number for a duration": (
        'reclaim_after = "4m"',
        "reclaim_after = 4",
        "policy.reclaim_after: this is text with a",
    ),
    "no such node": ('on = "node-0"', 'on = "node-9"', "jobs.serving.running.on: there is no node 'node-9'"),
    "a node twice": ('["node-1", "node-2"], since', '["node-1", "node-1"], since', "jobs.sweep.running.on: node-1 is"),
    "a checkpoint from before the attempt": (
        'saved = ["20m"]',
        'saved = ["20m", "6h"]',
        "jobs.sweep.running.saved: it did not run then",
    ),
    "an attempt that ends before it begins": (
        'saves_in = "30s"',
        'earlier = [{ on = "node-1", since = "9h", until = "10h" }]',
        "jobs.sweep.earlier[0].until: it ends before it begins",
    ),
    "no such event": ('do = "cordon"', 'do = "cordn"', "events[0].do: this is 'cordn'"),
    "after the end": ('at = "10m"', 'at = "99m"', "expect[1].at: this is after the end"),
    "no such job": ('waits = ["sweep"]', 'waits = ["swep"]', "expect[1].waits: there is no job 'swep'"),
    "no such queue": ('queue = "research"\ngpus = 1\n', 'queue = "x"\ngpus = 1\n', "jobs.notebook: the core does not"),
    "a job that waits for a later one": (
        'saves_in = "30s"',
        'after = ["notebook"]',
        "jobs.sweep.after: job 'notebook' is submitted after this one",
    ),
    "jobs that wait for each other": (
        'at = "1m"',
        'after = ["twin"]\n[jobs.twin]\nat = "1m"\nafter = ["retrain"]',
        "jobs.retrain.after: retrain waits for twin waits for retrain, a circle",
    ),
    "a policy that contradicts itself": ("ceiling = 24", "ceiling = 4", "queues.research.ceiling: queue"),
    "levels out of order": ('reclaim_after = "4m"', 'levels = ["9h", "8h"]', "policy.levels: levels has 8h after 9h"),
}
"""By what is wrong: a text of the example, what stands there instead, and what is said of it."""


@pytest.mark.parametrize("what", BAD)
def test_a_file_that_does_not_hold_together_is_told_by_line_and_key(
    gangline: Gangline, example: Path, what: str
) -> None:
    right, wrong, message = BAD[what]
    assert EXAMPLE.count(right) >= 1
    example.write_text(EXAMPLE.replace(right, wrong, 1))
    line = 1 + EXAMPLE[: EXAMPLE.index(right)].count("\n")
    done = gangline("simulate", "--scenario", example, "--check")
    assert done.code == 2
    found = re.search(rf"reclaim\.toml:(\d+): {re.escape(message)}", done.err)
    assert found, done.err
    # The row that the key stands in, or that its table begins with.
    assert abs(int(found[1]) - line) <= 3


def test_what_comes_out_otherwise_is_told_by_line_and_key(gangline: Gangline, example: Path) -> None:
    example.write_text(EXAMPLE.replace('runs = ["retrain", ', 'runs = ["sweep", '))
    done = gangline("simulate", "--scenario", example, "--check")
    assert done.code == 1
    line = 1 + EXAMPLE[: EXAMPLE.index('runs = ["retrain"')].count("\n")
    assert done.out.startswith(f"{example}:{line}: expect[1].runs: sweep is pending, not running")


def test_a_file_that_is_not_there_is_not_found(gangline: Gangline, tmp_path: Path) -> None:
    done = gangline("simulate", "--scenario", tmp_path / "none.toml")
    assert done.code == 3
    assert "there is no file" in done.err


def test_with_check_something_has_to_be_expected(gangline: Gangline, example: Path) -> None:
    example.write_text(EXAMPLE[: EXAMPLE.index("[[expect]]")])
    done = gangline("simulate", "--scenario", example, "--check")
    assert done.code == 2
    assert "nothing is expected here" in done.err
