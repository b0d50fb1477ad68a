"""Every scenario under tests/scenarios comes out as it expects; each name states a rule, its edge or its contrary."""

from pathlib import Path

import pytest

from gangline.cli.scenario_file import read_scenario
from gangline.cli.scenario_output import complaints, outcome_of
from gangline.simulator.scenario_check import expects_something

FOLDER = Path(__file__).parent / "scenarios"
FILES = sorted(FOLDER.rglob("*.toml"))


def name(path: Path) -> str:
    return path.relative_to(FOLDER).with_suffix("").as_posix()


@pytest.mark.parametrize("path", FILES, ids=name)
def test_it_comes_out_as_expected(path: Path) -> None:
    file, outcome = outcome_of(path)
    wrong = complaints(file, outcome)
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_it_expects_something_and_is_named_by_a_sentence(path: Path) -> None:
    assert expects_something(read_scenario(path)[1])
    assert len(path.stem.split("-")) >= 4, "a sentence says what is so"
