"""Refuses network file systems, whose locks and shared memory SQLite's WAL and our queue cannot trust."""

import re
from pathlib import Path

from gangline.events.log import LogError

NETWORK_TYPES = frozenset(
    "9p acfs afs beegfs ceph cifs coda davfs gfs gfs2 glusterfs gpfs lustre ncpfs nfs nfs4 ocfs2 orangefs panfs "
    "pvfs2 smb2 smb3 smbfs wekafs".split()
)
"""Types in /proc/self/mountinfo that other machines can write, too."""

NETWORK_FUSE = frozenset(
    "ceph ceph-fuse davfs davfs2 gcsfuse glusterfs goofys juicefs lizardfs moosefs mountpoint-s3 objectivefs rclone "
    "s3fs seaweedfs sshfs".split()
)
"""The same for what follows `fuse.`."""


def mount_of(folder: Path, mountinfo: str) -> tuple[str, str]:
    """Return the mount point and the type of what holds `folder`, by the text of /proc/self/mountinfo (proc(5))."""
    best, kind = "", ""
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        point = re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), left.split(" ")[4])
        inside = point == "/" or folder.as_posix() == point or folder.as_posix().startswith(point + "/")
        if inside and len(point) >= len(best):  # of two on one point, the later one is on top
            best, kind = point, right.split(" ")[0]
    return best, kind


def is_network(kind: str) -> bool:
    """Whether a file system type is shared between machines."""
    main, _, fuse = kind.partition(".")
    return main in NETWORK_TYPES or (main == "fuse" and fuse in NETWORK_FUSE)


def refuse_network_mount(folder: Path, mountinfo: str | None = None) -> None:
    """Raise LogError if `folder` lies on a network file system. `mountinfo` is this process's unless given."""
    if mountinfo is None:
        source = Path("/proc/self/mountinfo")
        if not source.exists():  # not Linux
            return
        mountinfo = source.read_text()
    point, kind = mount_of(folder.resolve(), mountinfo)
    if is_network(kind):
        raise LogError(
            f"{folder} lies on {point}, a network file system ({kind}), where SQLite's locks do not hold: "
            "put the log on a local disk (set $GANGLINE_HOME), or use Kafka for several machines"
        )
