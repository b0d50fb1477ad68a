"""The deterministic core does nothing whose result could differ elsewhere, and the check for it bites."""

import ast
import fnmatch
from pathlib import Path

import pytest

from tests.core_rules import IMPURE_MODULES, declared_kinds, problems

ROOT = Path(__file__).parent.parent
CORE = ("registry", "scheduler")
SHELL = ("loop.py", "*_loop.py", "*_store.py", "__main__.py")
"""Files of those folders that do I/O, and are named for it."""


def is_shell(path: Path) -> bool:
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in SHELL)


def modules() -> dict[str, Path]:
    """Every module of the core and its shell, by the path from the root."""
    paths = [path for folder in CORE for path in sorted((ROOT / folder).rglob("*.py"))]
    return {path.relative_to(ROOT).as_posix(): path for path in paths}


def test_the_core_is_pure() -> None:
    pure = {name: path.read_text() for name, path in modules().items() if not is_shell(path)}
    shell = {
        "gangline." + name.removesuffix(".py").replace("/", ".") for name, path in modules().items() if is_shell(path)
    }
    declared = declared_kinds({name: ast.parse(source) for name, source in pure.items()})
    found = [
        f"{name}:{problem.line}: {problem.rule}: {problem.what}"
        for name, source in pure.items()
        for problem in problems(source, declared, IMPURE_MODULES | shell)
    ]
    assert pure, "the core has no modules: were its folders renamed?"
    assert not found, "\n".join(found)


BAD = {
    "a clock": ("import time", "import"),
    "a clock by name": ("from time import monotonic", "import"),
    "a calendar": ("from datetime import datetime", "import"),
    "random numbers": ("import random", "import"),
    "random numbers of numpy": ("from numpy import random", "import"),
    "random numbers through numpy": ("import numpy as np\nx = np.random", "import"),
    "random ids": ("from uuid import uuid4", "import"),
    "our own random ids": ("from gangline.events.ids import uuid7", "import"),
    "our own random ids by module": ("from gangline.events import ids\nX = ids.uuid7()", "import"),
    "secrets": ("import secrets", "import"),
    "the environment": ("import os", "import"),
    "the interpreter": ("import sys", "import"),
    "the network": ("import socket", "import"),
    "threads": ("import threading", "import"),
    "other processes": ("from concurrent.futures import ThreadPoolExecutor", "import"),
    "inexact mathematics": ("from math import log", "import"),
    "a cache between calls": ("from functools import lru_cache", "import"),
    "a backend of the log": ("from gangline.events.sqlite import SqliteLog", "import"),
    "a part of a backend": ("from gangline.events.sqlite_reader import SqliteReader", "import"),
    "a backend of the log by module": ("from gangline.events import kafka", "import"),
    "hash()": ("def f(x):\n    return hash(x)", "impure-call"),
    "id()": ("def f(x):\n    return id(x)", "impure-call"),
    "open()": ("def f(x):\n    return open(x)", "impure-call"),
    "float()": ("def f(x):\n    return float(x)", "float"),
    "a field of type float": ("class A:\n    x: float", "float"),
    "a float": ("X = 0.5", "float"),
    "true division": ("def f(a, b):\n    return a / b", "float"),
    "true division in place": ("def f(a, b):\n    a /= b", "float"),
    "a negative power": ("def f(a):\n    return a ** -1", "float"),
    "an array of floats": ("def f(a, np):\n    return a.astype(np.float64)", "float"),
    "a mean": ("def f(a):\n    return a.mean()", "float"),
    "a loop over a set display": ("def f():\n    for x in {1, 2}:\n        yield x", "set-order"),
    "a loop over set()": ("def f(a):\n    for x in set(a):\n        yield x", "set-order"),
    "a loop over a difference of sets": ("def f(a, b):\n    return [x for x in set(a) - b]", "set-order"),
    "a loop over a set by name": ("def f(a):\n    s = frozenset(a)\n    for x in s:\n        yield x", "set-order"),
    "a loop over a parameter": ("def f(s: frozenset[int]):\n    return [x for x in s]", "set-order"),
    "a loop over a field": (
        "class A:\n    s: frozenset[str]\ndef f(a):\n    for x in a.s:\n        yield x",
        "set-order",
    ),
    "a loop over what is returned": ("def s() -> set[int]: ...\ndef f():\n    return [x for x in s()]", "set-order"),
    "a list of a set": ("def f(a):\n    return list({x for x in a})", "set-order"),
    "a tuple of a union": ("def f(a, b):\n    return tuple(a.union(b))", "set-order"),
    "a text joined of a set": ("def f(a):\n    return ', '.join(set(a))", "set-order"),
    "an unpacked set": ("def f(a):\n    return [*set(a)]", "set-order"),
    "whichever of a set": ("def f(a):\n    s = set(a)\n    return s.pop()", "set-order"),
    "whichever of a map": ("def f(a):\n    return a.popitem()", "set-order"),
    "the least by a key": ("def f(a, k):\n    return min(set(a), key=k)", "set-order"),
    "a loop over items()": ("def f(m):\n    for k, v in m.items():\n        yield k, v", "dict-order"),
    "a list of keys()": ("def f(m):\n    return list(m.keys())", "dict-order"),
    "a comprehension over values()": ("def f(m):\n    return [v for v in m.values()]", "dict-order"),
    "a map of a map": ("def f(m):\n    return {k: v for k, v in m.items()}", "dict-order"),
    "a loop over a map": ("def f(m: Map[str, int]):\n    for k in m:\n        yield k", "dict-order"),
    "a loop over a map in a field": (
        "class A:\n    m: Map[str, int]\ndef f(a):\n    return [k for k in a.m]",
        "dict-order",
    ),
    "a list kept by a module": ("SEEN = []", "global-state"),
    "a map kept by a module": ("SEEN: dict[str, int] = {}", "global-state"),
    "a counter kept by a module": ("import itertools\nIDS = itertools.count()", "global-state"),
    "a list kept by a class": ("class A:\n    seen = []", "global-state"),
    "a global statement": ("def f():\n    global X\n    X = 1", "global-state"),
    "a function that calls itself": ("def f(x):\n    return f(x - 1)", "recursion"),
    "a method that calls itself": ("class A:\n    def f(self):\n        return self.f()", "recursion"),
    "functions that call each other": ("def f(x):\n    return g(x)\ndef g(x):\n    return f(x)", "recursion"),
    "an excuse for nothing": ("X = 1  # core: float: it was one once", "excuse"),
    "an excuse for something else": ("X = 0.5  # core: import: this is not it", "float"),
    "an excuse without a reason": ("X = 0.5  # core: float:", "float"),
}


@pytest.mark.parametrize("name", BAD)
def test_it_catches(name: str) -> None:
    source, rule = BAD[name]
    assert rule in {problem.rule for problem in problems(source)}


GOOD = {
    "a loop over sorted items": "def f(m):\n    for k, v in sorted(m.items()):\n        yield k, v",
    "a loop over a sorted set": "def f(a):\n    return [x for x in sorted(set(a))]",
    "a sum over values": "def f(m):\n    return sum(v for v in m.values())",
    "a sorted comprehension": "def f(m):\n    return sorted([k for k, v in m.items() if v])",
    "any of a set": "def f(a):\n    return any(x for x in set(a))",
    "a set of a set": "def f(m):\n    return frozenset({v.id for v in m.values()})",
    "the least of a set": "def f(a):\n    return min(set(a))",
    "membership and size of a set": "def f(a, x):\n    s = set(a)\n    return x in s and len(s)",
    "whole division": "def f(a, b):\n    return a // b",
    "a frozen table": "from types import MappingProxyType\nT = MappingProxyType({'a': 1})",
    "a table declared read-only": "T: Mapping[str, int] = {'a': 1}",
    "public names": "__all__ = ['f']",
    "exact mathematics": "from math import gcd, isqrt",
    "an excused loop": "def f(m):\n    for k in m.keys():  # core: dict-order: the result is a set\n        yield k",
    "calls downwards": "def f(x):\n    return g(x)\ndef g(x):\n    return x",
    "a method of another object by the same name": "class A:\n    def f(self, b):\n        return b.f()",
}


@pytest.mark.parametrize("name", GOOD)
def test_it_lets_pass(name: str) -> None:
    assert problems(GOOD[name]) == []
