"""The style that no linter checks: what modules say, what they are called, how long they are, what files may name."""

import ast
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = sorted(path.name for path in (ROOT / "src/gangline").iterdir() if path.is_symlink())
EVERYWHERE = [*FOLDERS, "benchmarks", "deploy", "examples", "tests"]

MODULE_LINES = 300
TEST_MODULE_LINES = 500
"""A test's module repeats its arrangement, so it may be longer."""
FUNCTION_LINES = 60

LONG: dict[str, str] = {
    "cli/submit.py:submit": "one parameter for each option of the command, which typer reads off the function",
    "events/decisions.py": "one type after the other, each a contract; there is nothing to split but the list",
    "scheduler/state.py": "every table of the state and what it holds, which is read as a whole",
    "deploy/local_kafka.py": "one script that runs by itself, without gangline, from fetching a broker to stopping it",
}
"""Modules (`folder/module.py`) and functions (`folder/module.py:name`) over those limits, each with its reason."""

VAGUE = {"common", "helper", "helpers", "manager", "managers", "misc", "util", "utils"}
"""Words that name no job."""

FLAT = {*FOLDERS, "registry", "simulator"}


def modules() -> list[Path]:
    return [path for folder in EVERYWHERE for path in sorted((ROOT / folder).rglob("*.py"))]


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def words(name: str) -> set[str]:
    """Return the words of a snake_case or CamelCase name, in lower case."""
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def jobs(_path: Path, tree: ast.Module) -> Iterator[str]:
    said = (ast.get_docstring(tree) or "").strip().partition("\n\n")[0]
    if not said.endswith((".", ":")) or len(said.split()) < 3:
        yield "its docstring does not state its job in a sentence"


def names(path: Path, tree: ast.Module) -> Iterator[str]:
    for part in path.parts:
        if vague := words(part.removesuffix(".py")) & VAGUE:
            yield f"'{part}' says {vague.pop()!r}, which names no job"
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and (vague := words(node.name) & VAGUE):
            yield f"class {node.name} says {vague.pop()!r}, which names no job"


def too_long(path: Path, tree: ast.Module) -> Iterator[tuple[str, int, int]]:
    """Yield what is longer than its limit, by the name it has in LONG, with its length and the limit."""
    limit = TEST_MODULE_LINES if path.parts[0] == "tests" else MODULE_LINES
    lines = max((node.end_lineno or 0 for node in tree.body), default=0)
    if lines > limit:
        yield path.as_posix(), lines, limit
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and length(node) > FUNCTION_LINES:
            yield f"{path.as_posix()}:{node.name}", length(node), FUNCTION_LINES


def sizes(path: Path, tree: ast.Module) -> Iterator[str]:
    for name, lines, limit in too_long(path, tree):
        if name not in LONG:
            yield f"{name} has {lines} lines, the limit is {limit}: split it, or give a reason in LONG"


def imports(_path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        named = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            named = [node.module or ""]
            if node.level:
                yield f"line {node.lineno}: a relative import"
                continue
        for name in named:
            if name.partition(".")[0] in FLAT:
                yield f"line {getattr(node, 'lineno', 0)}: import gangline.{name}, for {name} is a user's own module"


def docstrings(path: Path, tree: ast.Module) -> Iterator[str]:
    if path.parts[0] == "tests":
        return

    def public(body: list[ast.stmt]) -> Iterator[str]:
        for node in body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name[0] == "_":
                continue
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            derived = any(name.endswith(("override", "overload", ".setter")) for name in decorators)
            if not ast.get_docstring(node) and not derived:
                yield f"line {node.lineno}: {node.name} has no docstring"
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)

    yield from public(tree.body)


Rule = Callable[[Path, ast.Module], Iterator[str]]
RULES: list[Rule] = [jobs, names, sizes, imports, docstrings]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_every_module_follows(rule: Rule) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {complaint}"
        for path in modules()
        for complaint in rule(path.relative_to(ROOT), ast.parse(path.read_text()))
    ]
    assert not found, "\n".join(found)


def test_every_reason_for_length_is_still_needed() -> None:
    needed = {name for path in modules() for name, *_ in too_long(path.relative_to(ROOT), ast.parse(path.read_text()))}
    assert LONG.keys() <= needed, f"no longer too long: {sorted(LONG.keys() - needed)}"
    assert all(len(reason.split()) > 3 for reason in LONG.values())


FUNCTION = "def f():\n    '''Do it.'''\n"
BAD: dict[str, tuple[Rule, str, str]] = {
    "no docstring": (jobs, "events/a.py", "X = 1"),
    "a docstring that only names": (jobs, "events/a.py", '"""events."""'),
    "a vague file": (names, "events/utils.py", ""),
    "a vague part of a name": (names, "events/log_helpers.py", ""),
    "a vague folder": (names, "events/common/log.py", ""),
    "a vague class": (names, "events/a.py", "class LogManager: ..."),
    "a long module": (sizes, "events/a.py", "X = 1\n" * (MODULE_LINES + 1)),
    "a long test": (sizes, "tests/test_a.py", "X = 1\n" * (TEST_MODULE_LINES + 1)),
    "a long function": (sizes, "events/a.py", FUNCTION + "    x = 1\n" * FUNCTION_LINES),
    "a relative import": (imports, "events/a.py", "from .log import Log"),
    "a relative import of the folder": (imports, "events/a.py", "from . import log"),
    "a flat import": (imports, "events/a.py", "def f():\n    import events.log"),
    "a flat import of a name": (imports, "events/a.py", "from scheduler import loop"),
    "a bare function": (docstrings, "events/a.py", "def f(): ..."),
    "a bare class": (docstrings, "events/a.py", "class A: ..."),
    "a bare method": (docstrings, "events/a.py", "class A:\n    '''It is.'''\n    def f(self): ..."),
}


@pytest.mark.parametrize("name", BAD)
def test_it_catches(name: str) -> None:
    rule, path, source = BAD[name]
    assert list(rule(Path(path), ast.parse(source)))


# Written in parts, so that this file does not name them itself.
PRIVATE = re.compile(
    r"(?<![\w.])/(?:work|root|Users)" + r"/[\w.]"
    r"|-" + r"-(?:extra-)?index-url|-" + r"-find-links|\bindex" + r"-url\s*="
    r"|https?://[^\s/\"'>]*(?:artifactory|nexus|mirror|pkgs|jfrog|devpi)" + r"[^\s]*"
)
"""Paths of somebody's machine, and where somebody's packages come from."""


def configured_hosts() -> set[str]:
    """Return the hosts that this machine takes packages from."""
    variables = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX")
    addresses = [address for name in variables for address in os.environ.get(name, "").split()]
    hosts = {urlsplit(address.partition("=")[2] or address).hostname or "" for address in addresses}
    return hosts - {"", "localhost"}


def private(text: str) -> Iterator[str]:
    yield from (match.group() for match in PRIVATE.finditer(text))
    yield from (host for host in configured_hosts() if host in text)
    yield from (folder for folder in (f"{ROOT}/", f"{Path.home()}/") if len(folder) > 2 and folder in text)


def test_no_tracked_file_names_a_machine_or_a_mirror() -> None:
    found = []
    for path in tracked():
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [f"{path.relative_to(ROOT)}: {what}" for what in private(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "cd /" + "work/main",
        "'/" + "root/.venv'",
        f"{Path.home()}/gangline",
        f"{ROOT}/events",
        "-" + "-index-url https://packages.example.org/simple",
        "index" + "-url = https://packages.example.org/simple",
        "https://mir" + "ror.example.org/simple",
    ],
)
def test_machine_paths_and_mirrors_are_recognised(text: str) -> None:
    assert list(private(text))


def test_constraints_pin_versions_and_nothing_else() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in pins if not re.fullmatch(r"[a-z0-9-]+==[\w.]+", line)] == []
    pinned = [pin.partition("==")[0] for pin in pins]
    assert pinned == sorted(set(pinned)), "keep the list sorted, each name once"
