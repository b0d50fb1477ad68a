"""Checkpoints from a training script: saved so that they are whole or absent, resumed only if nothing changed.

Planning, format and resharding are torch.distributed.checkpoint's, so a run may resume with another number of ranks.
"""

import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from gangline.schemas.errors import GanglineError, UsageError
from gangline.schemas.launch import ResumeOffer, folder_of_uri
from gangline.schemas.manifest import (
    MANIFEST_NAME,
    CheckpointFile,
    Manifest,
    encode_manifest,
    sync_folder,
    write_durably,
)
from gangline.sdk.offers import fault_in, offers_for, read_offer, reject
from gangline.sdk.run import Run, active_run, step_number

if TYPE_CHECKING:
    from gangline.sdk.ranks import Ranks

MAX_UNFINISHED_SAVES = 1000
"""Saves of one step in one attempt that may fail before the next is refused: the disk is full, or worse."""


class CheckpointExists(GanglineError):
    """This attempt has a finished checkpoint of this step; checkpoints are never overwritten."""


class CheckpointSaveFailed(GanglineError):
    """A checkpoint was not saved: at least one rank failed. There is no manifest, so nothing will resume from it."""


class CheckpointLoadFailed(GanglineError):
    """A verified checkpoint does not fit the state that was given, or was deleted meanwhile.

    Parts of that state may have been replaced.
    """


class Resumed(msgspec.Struct, frozen=True, kw_only=True):
    """Where training goes on: after `step`, at `data_position`; `attempt` and `world_size` are the saver's."""

    step: int
    data_position: dict[str, Any] | None
    attempt: int
    world_size: int
    folder: Path


class Checkpointer:
    """Saves and resumes a run's training state; the same inside gangline, under torchrun, and under plain python.

    Takes the run that `gangline.init()` gave last, unless told another. All ranks call each method, in the same order.
    Raises `UsageError` if there is no run.
    """

    def __init__(self, run: Run | None = None) -> None:
        self._run = active_run() if run is None else run

    def save(self, state: dict[str, Any], *, step: int, data_position: dict[str, Any] | None = None) -> Path:
        """Save the state after `step` and give the checkpoint's folder.

        `state` is a dict of modules, optimizers, objects with `state_dict()` and `load_state_dict()`, tensors, and
        picklable values. What ranks hold in common is stored once, by one of them; what differs between ranks must be
        a DTensor or have a key of its own. `data_position` is any JSON object, the same on every rank.

        The folder is `<dir>/<run>/attempt-<a>/step-<n>`. Rank 0 writes `manifest.json` there last, when every rank's
        files are stored and synced; only then the checkpoint exists. A folder that a failed save left without a
        manifest stays as it is, and the next save of that step takes `step-<n>.2` (`.3`, ...).

        Raises, on every rank alike, `CheckpointSaveFailed` if a rank fails or dies, `CheckpointExists` if this attempt
        already saved this step, `UsageError` for a state, step or position that cannot be saved.
        """
        from gangline.sdk.ranks import RankFailed, Ranks

        ranks = Ranks()
        try:
            return self._save(ranks, state, step, data_position)
        except RankFailed as error:
            raise CheckpointSaveFailed(f"checkpoint of step {step} not saved: {error}") from error
        except (RuntimeError, OSError) as error:  # the process group's own: a rank died
            raise CheckpointSaveFailed(
                f"checkpoint of step {step} not saved: rank {ranks.rank} lost the others: {error}",
            ) from error

    def _save(self, ranks: "Ranks", state: dict[str, Any], step: int, data_position: dict[str, Any] | None) -> Path:
        from torch.distributed.checkpoint.state_dict_saver import save

        from gangline.sdk.state import tree_to_save
        from gangline.sdk.storage import HashingWriter

        tree: dict[str, Any] = {}

        def prepare() -> tuple[int, bytes]:
            nonlocal tree
            tree = tree_to_save(state)
            return step_number(step), _json_object(data_position)

        asked = ranks.all("preparing the state", prepare)
        if any(other != asked[0] for other in asked):
            raise UsageError(
                f"the ranks save different steps or data positions: {asked}; per-rank values go in `state`"
            )
        step = asked[0][0]
        folder: Path = ranks.first("making the folder", lambda: _new_folder(self._run.place.checkpoint_dir, step))
        writer = HashingWriter(folder)
        _collectively(ranks, lambda no_dist: save(tree, storage_writer=writer, no_dist=no_dist))

        def store() -> list[CheckpointFile]:
            sync_folder(folder)
            return writer.written

        files = [file for of_rank in ranks.all("storing the files", store) for file in of_rank]
        ranks.first("writing the manifest", lambda: self._write_manifest(folder, step, ranks.size, files, asked[0][1]))
        return folder

    def _write_manifest(
        self,
        folder: Path,
        step: int,
        world_size: int,
        files: list[CheckpointFile],
        data_position: bytes,
    ) -> None:
        from importlib.metadata import version  # slow to import

        for file in files:
            path = folder / file.path
            if not path.is_file() or path.stat().st_size != file.size_bytes:
                raise CheckpointSaveFailed(f"rank 0 does not see {path} as written: all nodes must share the folder")
        manifest = Manifest(
            run=self._run.name,
            attempt=self._run.place.attempt,
            step=step,
            world_size=world_size,
            files=tuple(sorted(files, key=lambda file: file.path)),
            data_position=msgspec.json.decode(data_position),
            created_at_us=time.time_ns() // 1000,
            gangline_version=version("gangline"),
        )
        write_durably(folder / MANIFEST_NAME, encode_manifest(manifest))

    def resume(self, state: dict[str, Any]) -> Resumed | None:
        """Load the newest good checkpoint into `state`, in place; None, and nothing touched, if there is none.

        Inside gangline that is the newest of those that the platform committed and named, outside it the newest in
        the run's folder. Manifest and files are verified, each rank reading a share; a checkpoint that fails is
        reported with the reason and the one before is taken. Modules, optimizers and tensors are loaded in place,
        other values replaced in `state`. All ranks take the same checkpoint.

        Raises, on every rank alike, `CheckpointLoadFailed` if the checkpoint does not fit the state, `OSError` or
        `RankFailed` if storage cannot be read for a reason that is not the checkpoint's.
        """
        from gangline.sdk.ranks import Ranks

        ranks = Ranks()
        for offer in ranks.first("finding checkpoints", lambda: offers_for(self._run)):
            taken = _verified(ranks, offer)
            if isinstance(taken, Manifest):
                return self._load(ranks, state, folder_of_uri(offer.uri), taken)
            ranks.first("rejecting a checkpoint", partial(reject, self._run, offer, taken))
        return None

    def _load(self, ranks: "Ranks", state: dict[str, Any], folder: Path, manifest: Manifest) -> Resumed:
        from torch.distributed.checkpoint.filesystem import FileSystemReader
        from torch.distributed.checkpoint.state_dict_loader import load

        from gangline.sdk.ranks import RankFailed
        from gangline.sdk.state import put_back, tree_to_load

        reader = FileSystemReader(folder)
        tree: dict[str, Any] = {}

        def prepare() -> None:
            nonlocal tree
            tree = tree_to_load(state, reader.read_metadata().state_dict_metadata)

        try:
            ranks.all("preparing the state", prepare)
            _collectively(ranks, lambda no_dist: load(tree, storage_reader=reader, no_dist=no_dist))
            ranks.all("putting the state back", lambda: put_back(state, tree))
        except RankFailed as error:
            raise CheckpointLoadFailed(
                f"{folder} was verified but cannot be loaded: {error}; "
                "load into the same modules and keys that were saved, leave the folder in place, or start a new run",
            ) from error
        return Resumed(
            step=manifest.step,
            data_position=manifest.data_position,
            attempt=manifest.attempt,
            world_size=manifest.world_size,
            folder=folder,
        )


def _new_folder(attempt_folder: Path, step: int) -> Path:
    attempt_folder.mkdir(parents=True, exist_ok=True)
    for save in range(1, MAX_UNFINISHED_SAVES + 1):
        folder = attempt_folder / (f"step-{step}" if save == 1 else f"step-{step}.{save}")
        try:
            folder.mkdir()
        except FileExistsError:
            if (folder / MANIFEST_NAME).exists():
                raise CheckpointExists(
                    f"{folder} is a finished checkpoint and is never overwritten: save each step once per attempt",
                ) from None
            continue
        sync_folder(attempt_folder)
        sync_folder(attempt_folder.parent)
        return folder
    raise CheckpointSaveFailed(f"{MAX_UNFINISHED_SAVES} saves of step {step} failed: free space in {attempt_folder}")


def _json_object(value: dict[str, Any] | None) -> bytes:
    try:
        data = msgspec.json.encode(value, order="deterministic")
    except (TypeError, ValueError) as error:
        raise UsageError(f"data_position must be a JSON object: {error}") from error
    if data[:1] not in {b"{", b"n"} or msgspec.json.decode(data) != value:
        raise UsageError(f"data_position is {value!r}, but must be a JSON object (lists, not tuples; no NaN)")
    return data


def _verified(ranks: "Ranks", offer: ResumeOffer) -> Manifest | str:
    """Give an offered checkpoint's manifest if all is as it was, else what is wrong; ranks share the reading."""
    manifest = ranks.first("reading the manifest", partial(read_offer, offer))
    if isinstance(manifest, str):
        return manifest
    share = manifest.files[ranks.rank :: ranks.size]
    faults = ranks.all("verifying the checkpoint", partial(fault_in, folder_of_uri(offer.uri), manifest, share))
    return next((fault for fault in faults if fault), manifest)


def _collectively(ranks: "Ranks", call: Callable[[bool], object]) -> None:
    """Call into torch.distributed.checkpoint, which tells all ranks of one's failure; raises it as `RankFailed`."""
    from torch.distributed.checkpoint.api import CheckpointException

    from gangline.sdk.ranks import RankFailed

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is disabled")
            call(not ranks.connected)
    except CheckpointException as error:
        reasons = [f"rank {rank}: {type(cause).__name__}: {cause}" for rank, (cause, _) in error.failures.items()]
        raise RankFailed("; ".join(reasons)) from error
