"""What training scripts import: the run, its metrics, its checkpoints. Importing it loads neither torch nor numpy."""

from gangline.sdk.checkpoint import (
    Checkpointer,
    CheckpointExists,
    CheckpointLoadFailed,
    CheckpointSaveFailed,
    Resumed,
)
from gangline.sdk.run import Run, init

__all__ = [
    "CheckpointExists",
    "CheckpointLoadFailed",
    "CheckpointSaveFailed",
    "Checkpointer",
    "Resumed",
    "Run",
    "init",
]
