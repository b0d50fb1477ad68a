"""The commands and flags that users rely on: frozen, with help, an example and JSON."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from gangline.cli.app import app

FROZEN = Path(__file__).with_name("commands.txt")
"""Written anew with GANGLINE_FREEZE=1, for a change that is meant."""

READS = {"jobs", "job show", "job logs", "job wait", "nodes", "queues", "events tail"}


Command = Any
"""What typer makes of a function; it keeps its types private."""


def commands() -> Iterator[tuple[str, Command]]:
    def walk(command: Command, path: str) -> Iterator[tuple[str, Command]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            yield path, command
            return
        for name, one in sorted(inner.items()):
            yield from walk(one, f"{path} {name}".strip())

    yield from walk(typer.main.get_command(app), "")


def options(command: Command) -> list[str]:
    return sorted("/".join(sorted(one.opts)) if one.param_type_name == "option" else one.name for one in command.params)


COMMANDS = dict(commands())


def test_the_commands_and_flags_are_those_that_users_know() -> None:
    now = "".join(f"{name}: {' '.join(options(command))}\n" for name, command in COMMANDS.items())
    if os.environ.get("GANGLINE_FREEZE"):
        FROZEN.write_text(now)
    assert now == FROZEN.read_text(), "GANGLINE_FREEZE=1 freezes what is meant to change"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_help_with_an_example(name: str) -> None:
    text = COMMANDS[name].help or ""
    assert f"Example: gangline {name}" in text


@pytest.mark.parametrize("name", sorted(READS))
def test_a_read_speaks_json_and_waits_for_an_index(name: str) -> None:
    assert {"--json", "--after"} <= set(options(COMMANDS[name]))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_it_is(name: str) -> None:
    assert [one.name for one in COMMANDS[name].params if one.param_type_name == "option" and not one.help] == []
