"""Looks for what an attempt's ranks leave for the log: finished checkpoints, and offered ones that they rejected."""

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from gangline.agents.facts import Facts
from gangline.agents.outbox import Outbox
from gangline.agents.run_folder import AttemptKey, RunFolder
from gangline.events.types import CheckpointRef
from gangline.schemas.errors import GanglineError
from gangline.schemas.launch import Rejection
from gangline.schemas.manifest import find_manifests, manifest_sha256, read_manifest, verify_checkpoint

_log = logging.getLogger(__name__)


class CheckpointWatch:
    """Reports each finished checkpoint once, verified, and each rejection once. Used by one thread at a time."""

    def __init__(
        self, key: AttemptKey, folder: RunFolder, checkpoints: Path | None, facts: Facts, outbox: Outbox
    ) -> None:
        self._key = key
        self._folder = folder
        self._checkpoints = checkpoints
        self._facts = facts
        self._outbox = outbox
        self._uploaded = folder.uploaded()
        self._seen: set[Path] = set()
        """Checkpoint folders and rejections that are reported, or that will never be."""
        self._begun: set[Path] = set()
        """Checkpoint folders of which the log knows that they are being verified."""

    def scan(self) -> None:
        """Report what is new. What cannot be read just now is tried again at the next scan."""
        if self._checkpoints is not None:
            for folder in sorted(find_manifests(self._checkpoints)):
                if folder not in self._seen:
                    self._attend(folder, self._upload)
        for path in sorted(self._folder.spool.glob("rejected-*.json")):
            if path not in self._seen:
                self._attend(path, self._reject)

    def _attend(self, path: Path, report: Callable[[Path], bool]) -> None:
        try:
            done = report(path)
        except OSError as error:
            _log.warning("%s cannot be read now: %s", path, error)
            return
        except (GanglineError, msgspec.MsgspecError) as error:
            _log.warning("%s is not reported: %s", path, error)
            done = True
        if done:
            self._seen.add(path)

    def _upload(self, folder: Path) -> bool:
        sha256 = manifest_sha256(folder)
        if sha256 in self._uploaded:
            return True
        manifest = read_manifest(folder, sha256=sha256)
        if (manifest.run, manifest.attempt) != self._key:
            raise GanglineError(f"its manifest belongs to attempt {manifest.attempt} of {manifest.run!r}")
        if folder not in self._begun:
            if not self._outbox.put(self._key.job_id, self._facts.upload_started(self._key, manifest.step)):
                return False
            self._begun.add(folder)
        verify_checkpoint(folder, manifest, sha256=sha256)
        reference = CheckpointRef(step=manifest.step, uri=folder.absolute().as_uri(), manifest_sha256=sha256)
        return self._outbox.put(
            self._key.job_id,
            self._facts.uploaded(self._key, reference, manifest.size_bytes),
            lambda: self._folder.set_uploaded(sha256),
        )

    def _reject(self, path: Path) -> bool:
        found = msgspec.json.decode(path.read_bytes(), type=Rejection)
        reference = CheckpointRef(step=found.step, uri=found.uri, manifest_sha256=found.manifest_sha256)
        return self._outbox.put(self._key.job_id, self._facts.rejected(self._key, reference, found.reason))
