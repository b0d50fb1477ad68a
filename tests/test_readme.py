"""What README.md promises exists: its commands are targets of the Makefile, its links lead somewhere."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = sorted(set(re.findall(r"\bmake ([a-z]+)\b", README)))
DOCS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_it_names_the_two_commands() -> None:
    assert {"demo", "test"} <= set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_make_knows(command: str) -> None:
    done = subprocess.run(["make", "--dry-run", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_ci_runs_the_test_command_and_lint() -> None:
    lines = [line.split("|")[0].split("2>")[0].strip() for line in (ROOT / ".ci/run").read_text().splitlines()]
    assert {"make test", "make lint"} <= set(lines)


@pytest.mark.parametrize("page", DOCS, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_decision_is_in_the_index() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text()
    records = sorted((ROOT / "docs/decisions").glob("0*.md"))
    assert [record.name for record in records if f"({record.name})" not in index] == []
