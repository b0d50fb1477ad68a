"""A webhook on loopback that keeps what it gets, and a notifier in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from tests.agents.node import WAIT_S, wait_for


class Receiver:
    """An HTTP server; `answer` chooses the status of each message, and may do anything before."""

    def __init__(self, port: int = 0) -> None:
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[dict[str, Any]], int] = lambda _body: 200
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver.headers.append(dict(self.headers))
                receiver.got.append(body)
                status = receiver.answer(body)
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                except OSError:
                    pass  # who sent it is gone

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name that it overrides
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kinds(self, name: str | None = None) -> list[str]:
        return [one["kind"] for one in self.got if name is None or one["name"] == name]

    def wait(self, count: int) -> list[dict[str, Any]]:
        return wait_for(lambda: list(self.got) if len(self.got) >= count else None, f"{count} messages")

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Notifier:
    """A notifier process on a log."""

    def __init__(self, home: Path, log_url: str, *words: str) -> None:
        home.mkdir(exist_ok=True)
        self.stderr = home / "notifier.err"
        with self.stderr.open("ab") as errors:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "gangline.agents.notifier", "--home", str(home), "--log", log_url),
                    *words,
                ],
                stderr=errors,
                env={**os.environ, "HOOK_TOKEN": "secret-7"},
            )

    def begun(self) -> Self:
        wait_for(
            lambda: "tells what happens" in self.stderr.read_text() or self.process.poll() is not None, "the beginning"
        )
        assert self.process.poll() is None, self.stderr.read_text()
        return self

    def end(self, signum: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signum)
        return self.process.wait(WAIT_S)


@contextmanager
def notifying(home: Path, log_url: str, *words: str) -> Iterator[Notifier]:
    running = Notifier(home, log_url, *words)
    try:
        yield running
    finally:
        running.end(signal.SIGKILL)
