"""Gives one message to its target: a POST of JSON, or a program with the JSON on its standard input."""

import os

import urllib3
from urllib3.exceptions import HTTPError

from gangline.agents.notifier.routes import Target
from gangline.agents.programs import run_program

EVENT_HEADER = "X-Gangline-Event-Id"
"""The event's id, the same each time it is sent; also sent as Idempotency-Key, which several receivers know."""

EVENT_VARIABLE = "GANGLINE_EVENT_ID"
"""The same for programs."""

PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""What a program gets of the notifier's environment; the rest may be secrets of gangline."""

SHOWN_BYTES = 300
"""Of what a receiver says to a message that it does not take."""

_OF_THE_MESSAGE = frozenset({400, 413, 415, 422})
"""Answers that say something of this message; others will be given to the next one, too."""


class Undelivered(Exception):
    """The message was not taken. `of_target`: the target takes none now, so others need not be tried either."""

    def __init__(self, message: str, *, of_target: bool) -> None:
        super().__init__(message)
        self.of_target = of_target


_http = urllib3.PoolManager(num_pools=64, maxsize=8, retries=False)


def deliver(target: Target, event_id: str, body: bytes) -> None:
    """Give a message to a target, within its time. Raises Undelivered."""
    if target.url:
        _post(target, event_id, body)
    else:
        _run(target, event_id, body)


def _post(target: Target, event_id: str, body: bytes) -> None:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "gangline-notifier",
        **target.headers,
        EVENT_HEADER: event_id,
        "Idempotency-Key": event_id,
    }
    try:
        answer = _http.request(
            "POST",
            target.url,
            body=body,
            headers=headers,
            timeout=urllib3.Timeout(total=target.timeout_s),
            redirect=False,
            preload_content=False,
        )
        try:
            said = answer.read(SHOWN_BYTES)
            answer.drain_conn() if answer.length_remaining == 0 else answer.close()
        finally:
            answer.release_conn()
    except (HTTPError, OSError, ValueError) as error:
        raise Undelivered(str(error), of_target=True) from error
    if not 200 <= answer.status < 300:  # noqa: PLR2004 - HTTP's own numbers (RFC 9110, section 15)
        text = said.decode(errors="replace").strip()
        raise Undelivered(f"it answers {answer.status} {text}".strip(), of_target=answer.status not in _OF_THE_MESSAGE)


def _run(target: Target, event_id: str, body: bytes) -> None:
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    try:
        ended = run_program(
            target.command,
            timeout_s=target.timeout_s,
            said_bytes=SHOWN_BYTES,
            given=body,
            environment={**environment, EVENT_VARIABLE: event_id},
        )
    except OSError as error:
        raise Undelivered(f"{target.command[0]} cannot be started: {error.strerror}", of_target=True) from error
    if ended.code is None:
        raise Undelivered(f"it does not end within {target.timeout_s:g} s, and is killed", of_target=True)
    if ended.code:
        raise Undelivered(f"it exits with {ended.code}: {ended.said or '(it said nothing)'}", of_target=False)
