"""Storage of torch.distributed.checkpoint that hashes files as it writes them, and never writes over one."""

import hashlib
import io
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemWriter
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from gangline.schemas.errors import GanglineError
from gangline.schemas.manifest import CheckpointFile


class CheckpointWriteFailed(GanglineError):
    """A rank could not store its part of a checkpoint."""


class _HashingStream(io.RawIOBase):
    """Hands on what is written, in order, and keeps its hash."""

    def __init__(self, target: io.BufferedWriter) -> None:
        self._target = target
        self.digest = hashlib.sha256()
        self.size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # whatever the base class calls a buffer
        self._target.write(view)
        self.digest.update(view)
        self.size_bytes += len(view)
        return len(view)

    def tell(self) -> int:
        return self.size_bytes

    def flush(self) -> None:
        if not self._target.closed:
            self._target.flush()

    def fileno(self) -> int:
        return self._target.fileno()


class HashingFileSystem(FileSystem):
    """The local file system, which remembers length and SHA-256 of each file written; `root` is the checkpoint."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.written: dict[str, CheckpointFile] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Generator[io.IOBase, None, None]:
        """Open a file; one that is written must not exist yet. Raises `OSError`."""
        if mode != "wb":
            with super().create_stream(path, mode) as stream:
                yield stream
            return
        with Path(path).open("xb") as target:
            hashing = _HashingStream(target)
            yield hashing
        name = Path(path).relative_to(self._root).as_posix()
        self.written[name] = CheckpointFile(
            path=name,
            size_bytes=hashing.size_bytes,
            sha256=hashing.digest.hexdigest(),
        )

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file that this object wrote. Raises `OSError`."""
        super().rename(path, new_path)
        file = self.written.pop(Path(path).relative_to(self._root).as_posix())
        name = Path(new_path).relative_to(self._root).as_posix()
        self.written[name] = CheckpointFile(path=name, size_bytes=file.size_bytes, sha256=file.sha256)


class HashingWriter(FileSystemWriter):
    """Writes a checkpoint's files into a folder, synced; `written` then lists those of this rank.

    One file per rank, one thread: torch's writer loses errors of its other threads.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, single_file_per_rank=True, sync_files=True, thread_count=1, overwrite=False)
        self._hashing = HashingFileSystem(folder)
        self.fs = self._hashing

    @property
    def written(self) -> list[CheckpointFile]:
        """The files that this rank wrote, by path."""
        return [file for _, file in sorted(self._hashing.written.items())]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Store this rank's part. Raises `CheckpointWriteFailed`, which other ranks can be told, unlike some causes."""
        try:
            return super().write_data(plan, planner)
        except Exception as error:
            cause = _root_of(error)
            raise CheckpointWriteFailed(f"{type(cause).__name__}: {cause}") from error


def _root_of(error: BaseException) -> BaseException:
    """Give the OSError behind an error, if any: torch's archive writer answers a full disk with its own confusion."""
    behind: BaseException | None = error
    while behind is not None and not isinstance(behind, OSError):
        behind = behind.__cause__ or behind.__context__
    return behind or error
