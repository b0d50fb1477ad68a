"""The head of a partition: how many records were ever acknowledged, kept beside the database.

SQLite drops what it cannot read at the end of a WAL without a word, so something outside of it has to say how much
there was. A head is written after its commit is durable and before the append returns: it may lag behind the database
(after a crash), but a database with fewer records than its head has lost some.
"""

import os
import struct
import zlib
from pathlib import Path

_COPY = struct.Struct("<8sQI")  # magic, count, CRC of both
_BODY_BYTES = 16
_MAGIC = b"ganghead"
_COPY_OFFSETS = (0, 512)  # the older one is overwritten, so that a kill in the middle of that leaves the newer
_FILE_BYTES = 1024


class Head:
    """The head file of one partition."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        if os.fstat(self._file).st_size < _FILE_BYTES:
            os.posix_fallocate(self._file, 0, _FILE_BYTES)

    def read(self) -> int:
        """Return the number of records acknowledged; 0 if none was ever noted."""
        return max(self._copies())

    def write(self, count: int) -> None:
        """Note that `count` records are durable. The caller holds the partition's lock."""
        first, second = self._copies()
        offset = _COPY_OFFSETS[0] if first < second else _COPY_OFFSETS[1]
        body = _COPY.pack(_MAGIC, count, 0)[:_BODY_BYTES]
        os.pwrite(self._file, body + zlib.crc32(body).to_bytes(4, "little"), offset)

    def _copies(self) -> tuple[int, int]:
        """Return what both copies say, 0 for one that is torn or was never written."""
        data = os.pread(self._file, _FILE_BYTES, 0)
        counts = [0, 0]
        for copy, offset in enumerate(_COPY_OFFSETS):
            if len(data) >= offset + _COPY.size:
                magic, count, crc = _COPY.unpack_from(data, offset)
                if magic == _MAGIC and crc == zlib.crc32(data[offset : offset + _BODY_BYTES]):
                    counts[copy] = count
        return counts[0], counts[1]

    def sync(self) -> None:
        """Make the head durable; between calls it survives the end of every process, but not a power failure."""
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
