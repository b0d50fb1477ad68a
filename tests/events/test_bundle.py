"""Code bundles: what travels, in which bounds, and what may never come out of one."""

import gzip
import io
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from gangline.events import bundle
from gangline.events.bundle import BundleDamaged, BundleError, pack, unpack


def git(folder: Path, *arguments: str) -> str:
    settings = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *settings, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    (folder / "lib").mkdir(parents=True)
    (folder / "train.py").write_text("v1")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "lib" / "model.py").write_text("model")
    (folder / "deleted.py").write_text("")
    (folder / ".gitignore").write_text("data/\n")
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", "first")
    return folder


def unpacked(data: bytes, folder: Path) -> dict[str, str]:
    unpack(data, folder)
    return {
        path.relative_to(folder).as_posix(): str(path.readlink()) if path.is_symlink() else path.read_text()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def test_a_checkout_travels_as_it_is_in_the_work_tree_with_its_commit(checkout: Path, tmp_path: Path) -> None:
    clean = pack(checkout)
    assert (clean.commit, clean.dirty) == (git(checkout, "rev-parse", "HEAD"), False)
    (checkout / "train.py").write_text("v2")
    (checkout / "deleted.py").unlink()
    (checkout / "new file.py").write_text("untracked")
    (checkout / "data").mkdir()
    (checkout / "data" / "big.bin").write_text("ignored")
    (checkout / ".gangline").mkdir()
    (checkout / ".gangline" / "log").write_text("no code")
    changed = pack(checkout)
    assert (changed.commit, changed.dirty) == (clean.commit, True)
    assert unpacked(changed.data, tmp_path / "out") == {
        ".gitignore": "data/\n",
        "lib/model.py": "model",
        "new file.py": "untracked",
        "run.sh": "#!/bin/sh\n",
        "train.py": "v2",
    }
    assert os.access(tmp_path / "out/run.sh", os.X_OK)
    assert not os.access(tmp_path / "out/train.py", os.X_OK)


def test_gangline_s_own_folder_does_not_make_a_checkout_dirty(checkout: Path) -> None:
    (checkout / ".gangline").mkdir()
    (checkout / ".gangline" / "log").write_text("no code")
    assert not pack(checkout).dirty


def test_a_folder_of_a_checkout_travels_alone(checkout: Path, tmp_path: Path) -> None:
    assert unpacked(pack(checkout / "lib").data, tmp_path / "out") == {"model.py": "model"}


def test_a_repository_inside_the_checkout_travels_along(checkout: Path, tmp_path: Path) -> None:
    (checkout / "inner").mkdir()
    (checkout / "inner" / "a.py").write_text("inner")
    git(checkout / "inner", "init", "-q")
    assert unpacked(pack(checkout).data, tmp_path / "out")["inner/a.py"] == "inner"


def test_a_plain_folder_travels_whole_less_what_is_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    for name in ("a.py", "sub/b.py", "sub/__pycache__/b.pyc", "home/log", ".gangline/log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    packed = pack(folder, leave_out=(folder / "home",))
    assert (packed.commit, packed.dirty) == (None, False)
    assert unpacked(packed.data, tmp_path / "out") == {"a.py": "a.py", "sub/b.py": "sub/b.py"}


def test_equal_content_gives_equal_bytes(tmp_path: Path) -> None:
    for name, mtime in (("x", 1_000), ("y", 2_000)):
        (tmp_path / name).mkdir()
        for file in ("a", "b") if name == "x" else ("b", "a"):
            (tmp_path / name / file).write_text(file)
            os.utime(tmp_path / name / file, (mtime, mtime))
    assert pack(tmp_path / "x").data == pack(tmp_path / "y").data


def test_what_is_too_large_is_refused_with_the_largest_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_UNPACKED_BYTES", 1000)
    (tmp_path / "weights.bin").write_bytes(bytes(1001))
    with pytest.raises(BundleError, match=r"weights\.bin \(1,001 bytes\).*\.gitignore.*--code"):
        pack(tmp_path)


def test_a_folder_of_very_many_files_is_not_walked_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_WALKED", 2)
    for name in "abc":
        (tmp_path / name).touch()
    with pytest.raises(BundleError, match="more than 2 files, the limit is 20,000: name a smaller folder"):
        pack(tmp_path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="nowhere is no folder"):
        pack(tmp_path / "nowhere")


def test_links_travel_if_they_stay_inside_and_are_named_if_not(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "sub" / "inside").symlink_to("../a")
    (folder / "absolute").symlink_to("/etc/passwd")
    (folder / "above").symlink_to("../other")
    os.mkfifo(folder / "pipe")
    packed = pack(folder)
    assert packed.left_out == ("above", "absolute", "pipe")
    assert unpacked(packed.data, tmp_path / "out") == {"a": "a", "sub/inside": "../a"}


def link(name: str, to: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, to
    return entry


def file(name: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.size = 4
    return entry


def of_type(kind: bytes) -> tarfile.TarInfo:
    entry = tarfile.TarInfo("x")
    entry.type, entry.linkname = kind, "train.py"
    return entry


def archive(*entries: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for entry in entries:
            tar.addfile(entry, io.BytesIO(b"evil") if entry.isreg() else None)
    return buffer.getvalue()


@pytest.mark.parametrize(
    "entries",
    [
        [file("/tmp/gangline-escaped")],
        [file("../escaped")],
        [file("a/../../escaped")],
        [link("a", "/tmp")],
        [link("a", "..")],
        [link("a", "."), link("b", "a/../..")],
        [link("x/y/l", "../.."), link("m", "x/y/l/..")],
        [link("l", "."), link("l/c", "..")],
        [link("l", "sub"), link("l/c", "../../escaped")],
        [link("a", ".."), file("a/escaped")],
        [link("a", "sub"), file("a/b")],
        [file("a"), file("a")],
        [file("a"), file("a/b")],
        [of_type(tarfile.LNKTYPE)],
        [of_type(tarfile.FIFOTYPE)],
        [of_type(tarfile.CHRTYPE)],
    ],
    ids=lambda entries: " ".join(f"{entry.name}>{entry.linkname}" for entry in entries),
)
def test_nothing_escapes_and_nothing_half_unpacked_stays(entries: list[tarfile.TarInfo], tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with pytest.raises(BundleDamaged):
        unpack(archive(*entries), target)
    assert not target.exists()
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"]
    assert not Path("/tmp/gangline-escaped").exists()


@pytest.mark.parametrize(
    "data",
    [b"", b"no gzip", gzip.compress(b"no tar" * 200), archive(file("a"))[:-12]],
    ids=["nothing", "no gzip", "no tar", "cut"],  # gzip notes the time, so the bytes differ from worker to worker
)
def test_bytes_that_are_no_bundle_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(BundleDamaged):
        unpack(data, tmp_path / "out")


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "_MAX_TAR_BYTES", 100_000)
    with pytest.raises(BundleDamaged, match="unpacks to more than 100,000 bytes"):
        unpack(gzip.compress(bytes(200_000)), tmp_path / "out")


def test_a_tracked_folder_that_became_a_file_travels_as_that_file(checkout: Path, tmp_path: Path) -> None:
    (checkout / "lib" / "model.py").unlink()
    (checkout / "lib").rmdir()
    (checkout / "lib").write_text("now a file")
    assert unpacked(pack(checkout).data, tmp_path / "out")["lib"] == "now a file"


def test_a_tracked_folder_that_became_a_link_travels_as_that_link_alone(checkout: Path, tmp_path: Path) -> None:
    (checkout / "lib").rename(checkout / "source")
    (checkout / "lib").symlink_to("source")
    (tmp_path / "alias").symlink_to(checkout)  # the folder itself may well be named through a link
    found = unpacked(pack(tmp_path / "alias").data, tmp_path / "out")
    assert (found["lib"], found["source/model.py"]) == ("source", "model")
    assert "lib/model.py" not in found


def test_a_submodule_that_is_not_fetched_yet_travels_as_nothing(checkout: Path, tmp_path: Path) -> None:
    head = git(checkout, "rev-parse", "HEAD")
    git(checkout, "update-index", "--add", "--cacheinfo", f"160000,{head},vendored")
    (checkout / "vendored").mkdir()
    found = unpacked(pack(checkout).data, tmp_path / "out")
    assert found["train.py"] == "v1"
    assert not [name for name in found if name.startswith("vendored")]
