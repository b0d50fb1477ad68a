"""One history gives one sequence of bytes, whatever the hash seed and the version of Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = ("fastavro", "immutables", "msgspec", "numpy")
"""What the core runs on; the bytes of a term are those of one set of versions."""

INSTALL_TIMEOUT_S = 60
RUN_TIMEOUT_S = 100


def digests(python: str | Path, hash_seed: str) -> str:
    """Run the long history in a process of its own; return what it prints."""
    environment = {
        **os.environ,
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [str(python), "-m", "tests.scheduler.long_history"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def expected() -> str:
    return digests(sys.executable, "0")


@pytest.mark.slow
@pytest.mark.parametrize("hash_seed", ["1", "4294967295"])
def test_another_hash_seed_gives_the_same_bytes(expected: str, hash_seed: str) -> None:
    assert digests(sys.executable, hash_seed) == expected


def interpreter(version: str) -> Path:
    """Return an installed Python of this version with nothing in it; skip where there is none."""
    kept = sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin/python"))
    found = [*kept, *([Path(path)] if (path := shutil.which(f"python{version}")) else [])]
    for python in found:
        asked = subprocess.run(
            [python, "-c", "import sys; print(sys.version)"], capture_output=True, text=True, check=False
        )
        if asked.stdout.startswith(f"{version}."):
            return python
    pytest.skip(f"there is no Python {version} here to compare with")


@pytest.mark.slow
@pytest.mark.parametrize("version", [v for v in ("3.11", "3.12", "3.13") if not sys.version.startswith(f"{v}.")])
def test_another_version_of_python_gives_the_same_bytes(expected: str, version: str, tmp_path: Path) -> None:
    python = interpreter(version)
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    target = tmp_path / "venv"
    try:
        for command in (
            [uv, "venv", "--quiet", "--python", str(python), str(target)],
            [
                uv,
                "pip",
                "install",
                "--quiet",
                "--python",
                str(target / "bin/python"),
                "--constraints",
                str(ROOT / "constraints.txt"),
                *LIBRARIES,
            ],
        ):
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except (OSError, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"no environment of Python {version} can be made here: {getattr(error, 'stderr', '') or error}")
    assert digests(target / "bin/python", "7") == expected
