"""The wheel works where nothing else of the checkout is: built through the sdist, tried in fresh environments."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
UV = Path(sys.executable).parent / "uv"
FOLDERS = sorted(path.name for path in (ROOT / "src/gangline").iterdir() if path.is_symlink())

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300), pytest.mark.xdist_group("wheel")]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240)


def succeed(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def tracked() -> list[str]:
    listed = succeed("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    return [name for name in listed.split("\0") if name and (ROOT / name).exists()]


def environment(wheel: Path, extra: str, folder: Path) -> Path:
    """Install the wheel into a fresh environment and return its folder of programs."""
    succeed(UV, "venv", "--python", sys.executable, folder / "venv", cwd=folder)
    programs = folder / "venv/bin"
    constraints = ("--constraints", ROOT / "constraints.txt")
    succeed(UV, "pip", "install", "--python", programs / "python", *constraints, f"{wheel}{extra}", cwd=folder)
    return programs


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build from a copy of what git knows, so that nothing left over from earlier builds can lend a hand."""
    source = tmp_path_factory.mktemp("source")
    for name in tracked():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    out = tmp_path_factory.mktemp("dist")
    succeed(UV, "build", "--build-constraints", source / "constraints.txt", "--out-dir", out, source, cwd=source)
    assert len(list(out.glob("*.tar.gz"))) == 1
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def base(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(wheel, "", tmp_path_factory.mktemp("base"))


def test_the_wheel_holds_every_file_of_the_folders_and_nothing_else(wheel: Path) -> None:
    held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    links = {f"src/gangline/{folder}" for folder in FOLDERS}
    own = {name.removeprefix("src/") for name in tracked() if name.startswith("src/gangline/") and name not in links}
    assert held == own | {f"gangline/{name}" for name in tracked() if name.partition("/")[0] in FOLDERS}
    assert any(name.endswith(".avsc") for name in held)


def test_a_base_install_brings_the_sdk_and_little_else(base: Path, tmp_path: Path) -> None:
    said = succeed(base / "python", "-c", "import gangline; print(*sorted(dir(gangline)))", cwd=tmp_path)
    assert {"Checkpointer", "Run", "init"} <= set(said.split())
    listed = succeed(UV, "pip", "list", "--python", base / "python", "--format", "freeze", cwd=tmp_path)
    assert sorted(line.partition("==")[0] for line in listed.split()) == ["gangline", "msgspec"]


def test_a_base_install_names_the_missing_extra_and_exits_2(base: Path, tmp_path: Path) -> None:
    done = run(base / "gangline", "jobs", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "pip install 'gangline[server]'" in done.stderr


def test_a_server_install_runs_the_command(wheel: Path, tmp_path: Path) -> None:
    programs = environment(wheel, "[server]", tmp_path)
    assert "Usage: gangline" in succeed(programs / "gangline", "--help", cwd=tmp_path)
    assert succeed(programs / "gangline", "--version", cwd=tmp_path).strip() in wheel.name
