"""The digest of the code that decides covers all of it, and nothing else."""

import ast
import fnmatch
import shutil
import sys
from importlib import metadata, resources
from pathlib import Path

import pytest

from gangline.scheduler import code_store
from gangline.scheduler.code_store import BENEATH, LIBRARIES, SHELL, code_digest

ROOT = Path(__file__).parent.parent.parent
ERRORS_ONLY = {"events/log.py", "schemas/errors.py"}
"""What the core takes names of errors from, and nothing else."""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the sources that the digest is taken of."""
    copy = tmp_path / "gangline"
    for folder in ("events", "scheduler", "schemas"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(resources, "files", lambda _package: copy)
    return copy


def test_the_digest_is_the_same_for_the_same_sources(package: Path) -> None:
    copied = code_digest()
    assert package.exists()
    assert copied == code_digest()
    assert len(copied) == 64


@pytest.mark.parametrize(
    "name",
    [
        "scheduler/rules/admission.py",
        "scheduler/reducers/jobs.py",
        "scheduler/migrate.py",
        "scheduler/canonical.py",
        "events/decisions.py",
        "events/terms.py",
        "schemas/avro/gang_bound.v1.avsc",
        "schemas/contracts.py",
    ],
)
def test_editing_what_decides_changes_the_digest(name: str, package: Path) -> None:
    before = code_digest()
    path = package / name
    path.write_text(path.read_text() + "\n")
    assert code_digest() != before


@pytest.mark.parametrize(
    "name", ["scheduler/loop.py", "scheduler/follow_loop.py", "scheduler/__main__.py", "events/sqlite.py"]
)
def test_editing_what_only_feeds_the_core_does_not(name: str, package: Path) -> None:
    before = code_digest()
    path = package / name
    path.write_text(path.read_text() + "\n")
    assert code_digest() == before


def test_a_new_rule_and_a_new_contract_change_the_digest(package: Path) -> None:
    digests = {code_digest()}
    (package / "scheduler/rules/quotas.py").write_text('"""A rule."""\n')
    digests.add(code_digest())
    (package / "schemas/avro/gang_bound.v2.avsc").write_text("{}")
    digests.add(code_digest())
    assert len(digests) == 3


@pytest.mark.parametrize("library", LIBRARIES)
def test_another_version_of_a_library_changes_the_digest(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest()
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "99.0" if name == library else version(name))
    assert code_digest() != before


def imported(path: Path) -> set[str]:
    """Return every module that a module imports, by name."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def test_everything_that_the_core_imports_is_covered() -> None:
    pure = [
        path
        for path in (ROOT / "scheduler").rglob("*.py")
        if not any(fnmatch.fnmatch(path.name, pattern) for pattern in SHELL)
    ]
    waiting, seen, libraries = pure, set[Path](), set[str]()
    while waiting:
        path = waiting.pop()
        seen.add(path)
        for name in imported(path):
            top, _, rest = name.partition(".")
            if top != "gangline":
                libraries.add(top)
            found = ROOT / f"{rest.replace('.', '/')}.py"
            name_of = found.relative_to(ROOT).as_posix()
            if top == "gangline" and found.is_file() and found not in seen and name_of not in ERRORS_ONLY:
                waiting.append(found)
    beneath = {path.relative_to(ROOT).as_posix() for path in seen if path.parts[len(ROOT.parts)] != "scheduler"}
    assert beneath <= set(BENEATH)
    assert {library for library in libraries if library not in sys.stdlib_module_names} == set(LIBRARIES)


def test_a_checkout_has_no_wheel() -> None:
    assert code_store.wheel_digest() is None
