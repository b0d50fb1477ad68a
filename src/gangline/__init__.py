"""gangline: an ML training platform built on a log.

Importing this package costs nothing: the names of the SDK are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gangline.sdk import Checkpointer as Checkpointer
    from gangline.sdk import CheckpointExists as CheckpointExists
    from gangline.sdk import CheckpointLoadFailed as CheckpointLoadFailed
    from gangline.sdk import CheckpointSaveFailed as CheckpointSaveFailed
    from gangline.sdk import Resumed as Resumed
    from gangline.sdk import Run as Run
    from gangline.sdk import init as init

__all__ = [
    "CheckpointExists",
    "CheckpointLoadFailed",
    "CheckpointSaveFailed",
    "Checkpointer",
    "Resumed",
    "Run",
    "init",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(importlib.import_module("gangline.sdk"), name)
    raise AttributeError(f"module 'gangline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
