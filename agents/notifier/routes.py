"""Who is told what, and how: the operator's routes file, and the URLs that jobs name themselves.

allow = ["https://hooks.example.org/"]  # what the URLs of jobs may begin with; left out: any http(s) URL
keep = 168                              # hours that what cannot be delivered is tried again

[[route]]
name = "failures of research"
url = "https://hooks.example.org/x"     # or command = ["/usr/local/bin/tell", "--by", "mail"]
users = ["ann"]                         # each list that is left out means all of them
queues = ["research"]                   # and the queues below
jobs = ["train-*"]                      # by name or id
events = ["failed", "ended"]            # of started, preempted, failed, ended
headers = { Authorization = "$HOOK_TOKEN" }     # a value that begins with $ names a variable of the notifier
timeout = 10                            # seconds
"""

import fnmatch
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated

import msgspec

from gangline.agents.notifier.notice import Kind, Known, Notice
from gangline.agents.notifier.routes_file import MAX_KEEP_H, MAX_TIMEOUT_S, check_keys
from gangline.events.types import Value
from gangline.schemas.errors import NotFound, UsageError

ROUTES_FILE = "notify.toml"
"""In gangline's folder, unless --routes names another."""

TIMEOUT_S = 10.0
"""How long one delivery may take, unless its route says more or less."""

KEEP_H = 168.0
"""A week: whoever mends a receiver on Monday gets Friday's messages."""

MAX_URLS = 10
"""Of one job."""

SCHEMES = ("http://", "https://")


class Target(Value, frozen=True, kw_only=True):
    """Where messages go: a URL, or a command."""

    name: str
    url: str = ""
    command: tuple[str, ...] = ()
    headers: Mapping[str, str] = MappingProxyType({})
    timeout_s: float = TIMEOUT_S


class Route(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of the file."""

    name: Annotated[str, msgspec.Meta(min_length=1)]
    url: str = ""
    command: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    events: tuple[Kind, ...] = ()
    headers: dict[str, str] = {}
    timeout: Annotated[float, msgspec.Meta(gt=0, le=MAX_TIMEOUT_S)] = TIMEOUT_S

    def takes(self, notice: Notice) -> bool:
        """Whether a notice goes this way."""
        return (
            (not self.users or notice.user in self.users)
            and (not self.queues or any(f"{notice.queue}/".startswith(f"{queue}/") for queue in self.queues))
            and (not self.jobs or any(_matches(notice, pattern) for pattern in self.jobs))
            and (not self.events or bool(notice.words & set(self.events)))
        )

    def target(self) -> Target:
        """Return where it leads, with secrets out of the environment. Raises UsageError for a variable not set."""
        headers = {}
        for header, value in self.headers.items():
            if value.startswith("$") and value[1:] not in os.environ:
                raise UsageError(
                    f"route {self.name!r}: headers.{header} is {value}, but the notifier has no such variable: set "
                    f"{value[1:]} where it starts"
                )
            headers[header] = os.environ[value[1:]] if value.startswith("$") else value
        return Target(
            name=f"route {self.name}", url=self.url, command=self.command, headers=headers, timeout_s=self.timeout
        )


class Routes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    allow: tuple[str, ...] = SCHEMES
    keep: Annotated[float, msgspec.Meta(gt=0, le=MAX_KEEP_H)] = KEEP_H
    route: tuple[Route, ...] = ()

    def targets(self, notice: Notice, job: Known) -> tuple[list[Target], list[str]]:
        """Return where a notice goes, each place once, and the job's URLs that are not allowed."""
        found = {route.name: route.target() for route in self.route if route.takes(notice)}
        urls = dict.fromkeys(job.notify[:MAX_URLS])
        allowed = {url: Target(name=url, url=url) for url in urls if url.startswith(self.allow) and _is_http(url)}
        return [*found.values(), *allowed.values()], [url for url in urls if url not in allowed]

    def target(self, name: str) -> Target | None:
        """Return the target of this name, None if the file has it no more, or does not allow it any more."""
        for route in self.route:
            if name == f"route {route.name}":
                return route.target()
        return Target(name=name, url=name) if name.startswith(self.allow) and _is_http(name) else None


def read_routes(path: Path, *, needed: bool) -> Routes:
    """Return what a file says; without one that is `needed` there are no routes. Raises UsageError, NotFound."""
    routes = read_file(path, needed=needed)
    try:
        for route in routes.route:
            route.target()
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return routes


def read_file(path: Path, *, needed: bool) -> Routes:
    """Return the same, with no look at the environment, which may be another one than the notifier's."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        if needed:
            raise NotFound(f"there is no file {path}: make it, or name another with --routes") from None
        return Routes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}): name a file of routes with --routes") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}: line {line} is not UTF-8: save the file as UTF-8") from error
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    try:
        check_keys(table)
        routes = msgspec.convert(table, Routes)
        _check_routes(routes)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None
    return routes


def _check_routes(routes: Routes) -> None:
    for number, route in enumerate(routes.route):
        where = f"route[{number}] ({route.name!r})"
        if any(other.name == route.name for other in routes.route[:number]):
            raise UsageError(f"{where}: another route has this name: give it its own")
        if bool(route.url) == bool(route.command):
            found = "it has both a url and a command" if route.url else "it has neither a url nor a command"
            raise UsageError(f"{where}: {found}: name one of the two")
        if route.url and not _is_http(route.url):
            raise UsageError(f"{where}: url is {route.url!r}, which is no webhook: begin it with https:// or http://")
        if route.command and not _is_program(route.command[0]):
            raise UsageError(
                f"{where}: command is {route.command[0]!r}, which is no program: give the absolute path of one that "
                "may be run"
            )


def _is_program(name: str) -> bool:
    return os.path.isfile(name) and os.access(name, os.X_OK)  # noqa: PTH113 - a name of the operator's


def _is_http(url: str) -> bool:
    return url.startswith(SCHEMES) and url.isprintable() and " " not in url


def _matches(notice: Notice, pattern: str) -> bool:
    return fnmatch.fnmatchcase(notice.name, pattern) or fnmatch.fnmatchcase(notice.job_id, pattern)
