"""Code bundles: a folder of code as one deterministic tar.gz, and the way back that lets nothing escape.

From a git checkout a bundle takes the tracked files as they are in the work tree and the untracked ones that git does
not ignore (so the commit plus the differences), from any other folder all files. Equal content gives equal bytes.
"""

import gzip
import io
import os
import shutil
import stat
import subprocess
import tarfile
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from gangline.schemas.errors import GanglineError

MAX_UNPACKED_BYTES = 64 * 1024 * 1024
"""Code is small; what is larger is data or a build, and would be copied to every node at every attempt."""

MAX_FILES = 20_000
"""As many as unpack within a second or two."""

MAX_WALKED = 10 * MAX_FILES
"""After so many files it is clear that a folder is no code: `/` would be walked for minutes to count them all."""

MAX_BUNDLE_BYTES = MAX_UNPACKED_BYTES + MAX_FILES * 1024
"""What a bundle may measure at most, for content that does not compress."""

LEFT_OUT = frozenset({".git", ".gangline", "__pycache__"})
"""Folders that are never part of the code, wherever they stand."""

_MAX_TAR_BYTES = MAX_UNPACKED_BYTES + MAX_FILES * 4096
_NAMED_IN_ERRORS = 5


class BundleError(GanglineError):
    """A folder cannot be bundled; the text names what is in the way, and the way out."""


class BundleDamaged(GanglineError):
    """The bytes are no bundle that may be unpacked."""


class Bundle(NamedTuple):
    """A packed folder. `left_out` names what cannot travel: links that leave the folder, sockets, devices."""

    data: bytes
    commit: str | None
    dirty: bool
    left_out: tuple[str, ...]


class _Item(NamedTuple):
    name: str
    path: Path
    mode: int
    size_bytes: int


def pack(folder: Path, *, leave_out: Collection[Path] = ()) -> Bundle:
    """Bundle the code in `folder`, less the folders `leave_out`. Raises BundleError."""
    folder = folder.absolute()
    if not folder.is_dir():
        raise BundleError(f"{folder} is no folder: name the folder with the job's code")
    excluded = {path.absolute() for path in leave_out}
    listed = _git_files(folder)
    commit, dirty = (None, False) if listed is None else _git_state(folder)
    items, left_out = _items(folder, _walk(folder, excluded) if listed is None else listed, excluded)
    _check_bounds(folder, items)
    return Bundle(_tar(items), commit, dirty, tuple(left_out))


def unpack(data: bytes, target: Path) -> None:
    """Unpack a bundle into `target`, which must not exist. Raises BundleDamaged, OSError; then nothing is left of it.

    Links are made last, so no file is written through one, and only where they stay within the folder: their path
    may not climb out of it nor pass through another link.
    """
    target.mkdir(parents=True)
    try:
        _extract(_decompress(data), target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise


def _git(folder: Path, *arguments: str) -> bytes | None:
    """Return git's output, or None where there is no git or no repository. Raises BundleError if git refuses."""
    try:
        done = subprocess.run(  # noqa: S603 - fixed arguments
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - the user's git
            capture_output=True,
            check=False,
            env={**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"},
        )
    except FileNotFoundError:
        return None
    if done.returncode == 0:
        return done.stdout
    message = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in message or "unknown revision" in message or "Needed a single revision" in message:
        return None
    raise BundleError(f"git cannot list the code in {folder}: {message}")


def _git_files(folder: Path) -> list[str] | None:
    """Return the files of a checkout, relative to `folder`; None if it is none, or git ignores all that is in it."""
    output = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if not output:
        return None
    names: set[str] = set()
    for name in output.decode(errors="surrogateescape").split("\0"):
        if not name:
            continue
        path = folder / name
        if path.is_dir() and not path.is_symlink():  # a submodule, or a repository inside this one
            # Without its own .git, as before `git submodule update`, git would list the repository around it again.
            listed = _git_files(path) if (path / ".git").exists() else None
            names.update(f"{name.rstrip('/')}/{inner}" for inner in listed or _walk(path, ()))
        else:
            names.add(name)
    return sorted(names)


def _git_state(folder: Path) -> tuple[str | None, bool]:
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    changes = _git(folder, "status", "--porcelain", "-z", "--", ".", ":(exclude,glob)**/.gangline/**")
    return (commit.decode().strip() if commit else None), bool(changes)


def _walk(folder: Path, excluded: Collection[Path]) -> Iterator[str]:
    walked = 0
    for directory, subfolders, files in os.walk(folder):
        here = Path(directory)
        linked = [name for name in subfolders if (here / name).is_symlink()]
        subfolders[:] = [name for name in subfolders if name not in LEFT_OUT and here / name not in excluded]
        walked += len(files) + len(linked)
        if walked > MAX_WALKED:
            raise BundleError(
                f"the code in {folder} has more than {MAX_WALKED:,} files, the limit is {MAX_FILES:,}: name a smaller "
                "folder with --code"
            )
        for name in (*files, *linked):
            yield (here / name).relative_to(folder).as_posix()


def _items(folder: Path, names: Iterable[str], excluded: Collection[Path]) -> tuple[list[_Item], list[str]]:
    items: list[_Item] = []
    left_out: list[str] = []
    for name in sorted(names):
        path = folder / name
        if LEFT_OUT & set(PurePosixPath(name).parts[:-1]) or any(path.is_relative_to(other) for other in excluded):
            continue
        try:
            state = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            continue  # tracked by git, deleted in the work tree
        if any((folder / parent).is_symlink() for parent in PurePosixPath(name).parents[:-1]):
            continue  # tracked by git, its folder now a link: to git it is deleted, and the link travels
        if stat.S_ISREG(state.st_mode):
            items.append(_Item(name, path, 0o755 if state.st_mode & 0o100 else 0o644, state.st_size))
        elif stat.S_ISLNK(state.st_mode):
            items.append(_Item(name, path, 0, 0))
        else:
            left_out.append(name)
    links = {item.name: str(item.path.readlink()) for item in items if not item.mode}
    leaving = {name for name, to in links.items() if not _stays_inside(name, to, links)}
    return [item for item in items if item.name not in leaving], sorted([*left_out, *leaving])


def _check_bounds(folder: Path, items: list[_Item]) -> None:
    total = sum(item.size_bytes for item in items)
    if total <= MAX_UNPACKED_BYTES and len(items) <= MAX_FILES:
        return
    largest = sorted(items, key=lambda item: (-item.size_bytes, item.name))[:_NAMED_IN_ERRORS]
    named = ", ".join(f"{item.name} ({item.size_bytes:,} bytes)" for item in largest)
    raise BundleError(
        f"the code in {folder} has {len(items):,} files of {total:,} bytes together, the limit is {MAX_FILES:,} files "
        f"and {MAX_UNPACKED_BYTES:,} bytes. The largest: {named}. Add what is not code to .gitignore, or name a "
        "smaller folder with --code"
    )


def _tar(items: list[_Item]) -> bytes:
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="", compresslevel=6) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for item in items:
            entry = tarfile.TarInfo(item.name)  # times, owners and groups stay zero and empty
            if not item.mode:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(item.path.readlink()), 0o777
                archive.addfile(entry)
                continue
            content = item.path.read_bytes()
            entry.mode, entry.size = item.mode, len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def _decompress(data: bytes) -> bytes:
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as compressed:
            tar = compressed.read(_MAX_TAR_BYTES + 1)
    except (OSError, EOFError) as error:
        raise BundleDamaged(f"the code bundle cannot be decompressed: {error}") from error
    if len(tar) > _MAX_TAR_BYTES:
        raise BundleDamaged(f"the code bundle unpacks to more than {_MAX_TAR_BYTES:,} bytes")
    return tar


def _extract(tar: bytes, target: Path) -> None:
    links: dict[str, str] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(tar), mode="r:") as archive:
            for count, entry in enumerate(archive):
                parts = PurePosixPath(entry.name).parts
                if count >= MAX_FILES or not parts or entry.name.startswith("/") or ".." in parts:
                    raise BundleDamaged(f"the code bundle may not hold {entry.name!r}: too many files, or outside")
                if entry.issym():
                    links[entry.name] = entry.linkname
                elif entry.isreg():
                    content = archive.extractfile(entry)
                    _write(target / entry.name, b"" if content is None else content.read(), entry.mode)
                else:
                    raise BundleDamaged(f"the code bundle holds {entry.name!r}, which is neither a file nor a link")
    except tarfile.TarError as error:
        raise BundleDamaged(f"the code bundle cannot be read: {error}") from error
    for name, to in links.items():
        if not _stays_inside(name, to, links):
            raise BundleDamaged(f"the code bundle holds the link {name!r} to {to!r}, which leaves the folder")
    try:
        for name, to in links.items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(to)
    except FileExistsError as error:
        raise BundleDamaged(f"the code bundle holds {error.filename!r} twice") from error


def _write(path: Path, content: bytes, mode: int) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), 0o755 if mode & 0o100 else 0o644)
    except (FileExistsError, NotADirectoryError) as error:
        raise BundleDamaged(f"the code bundle holds {path.name!r} twice") from error


def _stays_inside(name: str, to: str, links: Collection[str]) -> bool:
    """Whether a link's path neither climbs out of the folder nor passes through a link (so `..` is what it seems)."""
    if to.startswith("/"):
        return False
    at = list(PurePosixPath(name).parts[:-1])
    if any("/".join(at[: depth + 1]) in links for depth in range(len(at))):
        return False
    parts = PurePosixPath(to).parts
    for number, part in enumerate(parts):
        if part == "..":
            if not at:
                return False
            at.pop()
            continue
        at.append(part)
        if number < len(parts) - 1 and "/".join(at) in links:
            return False
    return True
