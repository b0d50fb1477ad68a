"""Which checkpoints a run may start from, and whether each of them is still what it was."""

import logging
import os
import re
from itertools import islice
from pathlib import Path

from gangline.schemas.launch import (
    MAX_RESUME_OFFERS,
    RESUME,
    Rejection,
    ResumeOffer,
    decode_resume,
    folder_of_uri,
    write_rejection,
)
from gangline.schemas.manifest import (
    MANIFEST_NAME,
    CheckpointDamaged,
    CheckpointFile,
    Manifest,
    ManifestError,
    ManifestTooNew,
    attempt_folder_name,
    find_manifests,
    manifest_sha256,
    read_manifest,
    verify_checkpoint,
)
from gangline.sdk.place import attempts_of
from gangline.sdk.run import Run

_STEP_FOLDER = re.compile(r"step-(\d{1,19})(?:\.(\d{1,4}))?")

_logger = logging.getLogger("gangline")


def offers_for(run: Run) -> list[ResumeOffer]:
    """Give the checkpoints that the run may start from, newest first.

    Inside gangline those that the launcher named, outside those in the run's folder: of the latest attempt first, for
    that is where training last went on. Raises `UsageError`, `ManifestError`, or `OSError`.
    """
    if run.by_gangline:
        return decode_resume(os.environ.get(RESUME, ""))
    folders = (
        folder
        for attempt in attempts_of(run.run_dir)
        for folder in sorted(find_manifests(run.run_dir / attempt_folder_name(attempt)), key=_save_order, reverse=True)
    )
    return [
        ResumeOffer(step=_save_order(folder)[0], uri=folder.as_uri(), manifest_sha256=manifest_sha256(folder))
        for folder in islice(folders, MAX_RESUME_OFFERS)
    ]


def _save_order(folder: Path) -> tuple[int, int]:
    match = _STEP_FOLDER.fullmatch(folder.name)
    return (int(match[1]), int(match[2] or 1)) if match else (0, 0)


def read_offer(offer: ResumeOffer) -> Manifest | str:
    """Give an offered checkpoint's manifest, or why the checkpoint cannot be taken.

    Raises `FileNotFoundError` if not even the run's folder is there, and `ManifestTooNew`: these say nothing against
    the checkpoint, and going back to an older one would lose work for nothing.
    """
    folder = folder_of_uri(offer.uri)
    if not folder.parent.parent.is_dir():
        raise FileNotFoundError(f"{folder.parent.parent} is not there: is the checkpoints' storage mounted?")
    try:
        manifest = read_manifest(folder, sha256=offer.manifest_sha256)
    except ManifestTooNew:
        raise
    except (CheckpointDamaged, ManifestError) as error:
        return str(error)
    if manifest.step != offer.step:
        return f"{folder / MANIFEST_NAME} is of step {manifest.step}, not of step {offer.step}"
    return manifest


def fault_in(folder: Path, manifest: Manifest, share: tuple[CheckpointFile, ...]) -> str | None:
    """Verify a share of a checkpoint's files: None, or what is wrong. Raises `OSError`."""
    try:
        verify_checkpoint(folder, manifest, files=share)
    except CheckpointDamaged as error:
        return str(error)
    return None


def reject(run: Run, offer: ResumeOffer, reason: str) -> None:
    """Say that a checkpoint is passed over, to the user and, inside gangline, to the agent. Raises `OSError`."""
    _logger.warning("checkpoint of step %d rejected, trying the one before: %s", offer.step, reason)
    if run.by_gangline:
        rejection = Rejection(uri=offer.uri, manifest_sha256=offer.manifest_sha256, step=offer.step, reason=reason)
        write_rejection(run.place.spool_dir, rejection)
