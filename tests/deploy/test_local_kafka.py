"""The local broker: it ends with whoever owns it, and without Java it says what is missing."""

import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

from deploy import local_kafka
from tests import services

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "deploy" / "local_kafka.py"
WAIT_S = 30.0


@pytest.mark.slow
def test_a_broker_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    services.require_java()
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from deploy.local_kafka import LocalKafka\n"
        f"print(LocalKafka(Path({str(tmp_path)!r})).start().pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    owner = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with owner:
        assert owner.stdout is not None
        broker = os.pidfd_open(int(owner.stdout.readline()))
        owner.kill()
        ended, _, _ = select.select([broker], [], [], WAIT_S)
        os.close(broker)
    assert ended


@pytest.mark.slow
def test_a_command_runs_with_the_address_of_a_broker_and_its_exit_code_is_kept(tmp_path: Path) -> None:
    services.require_java()
    code = (
        "import os, sys\n"
        "from gangline.events.open_log import open_log\n"
        "open_log(f'kafka://{os.environ[\"GANGLINE_KAFKA\"]}/a', create=True).close()\n"
        "sys.exit(7)\n"
    )
    command = [sys.executable, str(SCRIPT), "run", "--data", str(tmp_path), "--", sys.executable, "-c", code]
    assert subprocess.run(command, check=False, timeout=WAIT_S * 2).returncode == 7


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    java = tmp_path / "java"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert local_kafka.missing_tools() == "Apache Kafka needs Java 17 or newer, and there is no `java` on the PATH"
    java.touch(mode=0o755)
    problem = local_kafka.missing_tools()
    assert problem is not None
    assert "no `mvn` (Maven) on the PATH" in problem
    with pytest.raises(local_kafka.KafkaMissing, match="no `mvn`"):
        local_kafka.fetch()
    local_kafka.cache_folder().mkdir(parents=True)
    assert local_kafka.missing_tools() is None


def test_a_missing_service_skips_here_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Apache Kafka is missing: no java"):
        services.missing("Apache Kafka", "no java")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Apache Kafka is missing, and CI expects it: no java"):
        services.missing("Apache Kafka", "no java")
