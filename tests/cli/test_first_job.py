"""The page for newcomers says what works: its commands run as they stand, its spec is a spec."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from gangline.cli.spec import read_spec
from tests.cli.invoke import Gangline
from tests.cli.running import Up, up

PAGE = (Path(__file__).parent.parent.parent / "docs/first-job.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    [command] = re.findall(r"^    gangline up (.*)$", PAGE, re.MULTILINE)
    with up(tmp_path / "cluster", *shlex.split(command)) as running:
        monkeypatch.setenv("GANGLINE_HOME", str(running.home))
        yield running


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_its_commands_run_as_they_stand(gangline: Gangline) -> None:
    [commands] = blocks("sh")
    job = "JOB"
    said = ""
    for line in commands.splitlines():
        words = shlex.split(line)[1:]
        ran = gangline(*(job if word == "JOB" else word for word in words))
        assert ran.code == 0, f"{line}: {ran.err}"
        if words[0] == "submit":
            job = ran.out.split()[0]
        said += ran.out
    assert "admitted" in said
    assert "hello" in said


def test_its_spec_is_a_spec(tmp_path: Path) -> None:
    [text] = blocks("toml")
    path = tmp_path / "spec.toml"
    path.write_text(text)
    asked = read_spec(path).asked()
    assert asked.spec.gpus == 2
    assert asked.spec.max_runtime_us == 7_200_000_000
