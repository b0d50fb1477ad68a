"""One real Apache Kafka broker on this machine, for tests, benchmarks and the demo; not for production.

    python deploy/local_kafka.py fetch
    python deploy/local_kafka.py run [--data FOLDER] [--port N] [-- COMMAND ...]

`run` prints the broker's address and serves until it is interrupted; with a command it sets GANGLINE_KAFKA=host:port
for it, and exits as the command does. It needs Java 17 or newer, and Maven for the first fetch. The broker stores its
data without waiting for the disk, so it survives kill -9, but not a power cut: production wants three brokers.
"""

import argparse
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

KAFKA_VERSION = "4.3.1"
HOST = "127.0.0.1"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
FETCH_TIMEOUT_S = 600.0

POM = f"""<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>gangline</groupId><artifactId>local-kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId>
      <version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller_port}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
controller.listener.names=CONTROLLER
log.dirs={log_dirs}
# A topic is made on purpose, with the settings that it needs.
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# A killed broker may come back at once.
broker.session.timeout.ms=1000
broker.heartbeat.interval.ms=200
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
# One small machine, few clients.
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.dedupe.buffer.size=4194304
"""

WATCH = """
import os, select, signal, sys
owner, child, number = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
try:
    child_fd = os.pidfd_open(child)
except ProcessLookupError:
    sys.exit()
waiter = select.poll()
waiter.register(child_fd, select.POLLIN)
try:
    owner_fd = os.pidfd_open(owner)
    waiter.register(owner_fd, select.POLLIN)
    ready = [fd for fd, _ in waiter.poll()]
except ProcessLookupError:
    ready = []
if child_fd not in ready:
    signal.pidfd_send_signal(child_fd, number)
"""


class KafkaMissing(Exception):
    """There is no Kafka here, and it cannot be fetched; the text says what is needed."""


def end_with(owner_pid: int, child_pid: int, number: int = signal.SIGKILL) -> "subprocess.Popen[bytes]":
    """Start a watcher that sends signal `number` to `child_pid` when process `owner_pid` has ended, however it ended.

    It follows the process, not the thread that started it (as PR_SET_PDEATHSIG does), and not its number (which may be
    given to another). The watcher ends with the child; whoever ends the child may wait for it.
    """
    return subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", WATCH, str(owner_pid), str(child_pid), str(int(number))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def leave(process: "subprocess.Popen[bytes]") -> None:
    """Let a process outlive this one: no one here waits for it, and Popen does not warn of that."""
    process.returncode = 0


def free_port() -> int:
    """Return a port that nobody listens on, outside the range from which outgoing connections get theirs.

    Inside it, a client that knocks at a stopped broker's port can be connected to itself.
    """
    for _ in range(1_000):
        port = random.randint(15_000, 32_000)  # noqa: S311 - not a secret
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return port
    raise OSError("no free port between 15,000 and 32,000")


def cache_folder() -> Path:
    """Return where Kafka's jars are kept, outside every checkout."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "gangline" / f"kafka-{KAFKA_VERSION}"


def missing_tools() -> str | None:
    """Return what is missing to run Kafka here, in words, or None."""
    if shutil.which("java") is None:
        return "Apache Kafka needs Java 17 or newer, and there is no `java` on the PATH"
    if not cache_folder().exists() and shutil.which("mvn") is None:
        return f"Apache Kafka is not in {cache_folder()} yet, and there is no `mvn` (Maven) on the PATH to fetch it"
    return None


def fetch() -> Path:
    """Return the folder of Kafka's jars; fetch them first with Maven if need be. Parallel calls share one fetch."""
    folder = cache_folder()
    if folder.exists():
        return folder
    problem = missing_tools()
    if problem is not None:
        raise KafkaMissing(problem)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetching-") as work:
            pom = Path(work, "pom.xml")
            pom.write_text(POM)
            jars = Path(work, "jars")
            # -C: a jar that does not match its checksum fails the fetch.
            command = ["mvn", "-B", "-q", "-C", "-f", str(pom), "dependency:copy-dependencies"]
            done = subprocess.run(
                [*command, f"-DoutputDirectory={jars}"],
                capture_output=True,
                text=True,
                timeout=FETCH_TIMEOUT_S,
                check=False,
            )
            if done.returncode != 0 or not any(jars.glob("kafka_*.jar")):
                raise KafkaMissing(f"Maven could not fetch Apache Kafka {KAFKA_VERSION}:\n{done.stdout}{done.stderr}")
            jars.rename(folder)
    return folder


class LocalKafka:
    """One broker on a free port with its data in `data`. A context manager; start, stop and kill may be repeated.

    The port and the data stay the same for its life. The broker ends when process `owner_pid` (by default this one)
    ends, however that happens.
    """

    def __init__(
        self, data: Path, *, port: int | None = None, heap_mb: int = 512, owner_pid: int | None = None
    ) -> None:
        self.data = data.resolve()
        self.port = port or free_port()
        self._controller_port = free_port()
        self._heap_mb = heap_mb
        self._owner_pid = owner_pid or os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients, host:port."""
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running broker."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def start(self) -> Self:
        """Start the broker and wait until it serves. Raises KafkaMissing, or RuntimeError with the end of its log."""
        if self._process is not None:
            return self
        java = ["java", f"-Xmx{self._heap_mb}m", f"-Xms{self._heap_mb // 4}m", "-XX:+UseSerialGC", "-Xshare:auto"]
        # The compiler's second tier pays off only after minutes, and costs the CPU that the tests run on.
        java += ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        java += ["-cp", f"{fetch()}/*"]
        properties = self._format(java)
        with (self.data / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.data,
                start_new_session=True,  # Ctrl-C reaches the owner, which stops the broker in order
            )
        self._watcher = end_with(self._owner_pid, self._process.pid)
        try:
            self._wait_until_it_serves()
        except BaseException:
            self.kill()
            raise
        return self

    def stop(self) -> None:
        """Stop the broker in order; kill it if that takes longer than STOP_TIMEOUT_S."""
        if self._process is None:
            return
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """End the broker with kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._watcher is not None:
            self._watcher.wait()
            self._watcher = None

    def leave(self) -> None:
        """Let the broker outlive this process, until its owner ends; it cannot be stopped from here any more."""
        for process in (self._process, self._watcher):
            if process is not None:
                leave(process)
        self._process = self._watcher = None

    def _format(self, java: list[str]) -> Path:
        """Write the broker's configuration, and format its storage the first time."""
        self.data.mkdir(parents=True, exist_ok=True)
        properties = self.data / "server.properties"
        fresh = not properties.exists()
        text = PROPERTIES.format(
            host=HOST, port=self.port, controller_port=self._controller_port, log_dirs=self.data / "log"
        )
        properties.write_text(text)
        if fresh:
            cluster_id = "Z2FuZ2xpbmUtbG9jYWwtMQ"  # 16 bytes in base64, as Kafka wants it
            tool = [*java, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
            done = subprocess.run(tool, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S)
            if done.returncode != 0:
                properties.unlink()
                raise RuntimeError(f"Kafka could not format {self.data}:\n{done.stdout}{done.stderr}")
        return properties

    def _wait_until_it_serves(self) -> None:
        from confluent_kafka import KafkaException  # noqa: PLC0415 - only whoever starts a broker needs the client
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415

        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._accepts():
            if self._process is None or self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended while it started:\n{self._log_end()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not serve within {START_TIMEOUT_S:.0f} s:\n{self._log_end()}")
            time.sleep(0.05)
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 200})
        while True:
            with contextlib.suppress(KafkaException):
                if admin.list_topics(timeout=1.0).brokers:
                    return
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not answer within {START_TIMEOUT_S:.0f} s:\n{self._log_end()}")

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((HOST, self.port)) == 0

    def _log_end(self) -> str:
        lines = (self.data / "broker.log").read_text(errors="replace").splitlines()
        return "\n".join(lines[-20:])

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextlib.contextmanager
def _data_folder(given: Path | None) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="gangline-kafka-") as folder:
        yield Path(folder)


def main(arguments: list[str]) -> int:
    """Run the command line; see the module."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="fetch Apache Kafka into the cache and print its folder")
    run = commands.add_parser("run", help="serve until interrupted, or while a command runs")
    run.add_argument("--data", type=Path, help="folder of the data (default: a temporary one)")
    run.add_argument("--port", type=int, help="port to serve on (default: a free one)")
    run.add_argument("run", nargs="*", metavar="COMMAND", help="command to run, with GANGLINE_KAFKA=host:port set")
    options = parser.parse_args(arguments)
    if options.command == "fetch":
        print(fetch())
        return 0
    # SIGTERM unwinds like Ctrl-C, so that the broker is stopped and its folder removed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _data_folder(options.data) as data, LocalKafka(data, port=options.port) as kafka:
            if options.run:
                return subprocess.call(options.run, env={**os.environ, "GANGLINE_KAFKA": kafka.bootstrap})
            print(kafka.bootstrap, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 130
    except KafkaMissing as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
