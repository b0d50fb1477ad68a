"""The manifest's contract: what it round-trips, and every fault that verification names."""

import hashlib
import json
import os
from pathlib import Path

import msgspec
import pytest

from gangline.schemas import manifest as m


def make_checkpoint(folder: Path, contents: dict[str, bytes]) -> m.Manifest:
    files = []
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        files.append(m.CheckpointFile(path=name, size_bytes=len(content), sha256=digest))
    manifest = m.Manifest(
        run="job-abc",
        attempt=2,
        step=40,
        world_size=2,
        files=tuple(files),
        data_position={"epoch": 3, "shards": ["b", "a"]},
        created_at_us=1_790_000_000_000_000,
        gangline_version="0.1.0",
    )
    m.write_durably(folder / m.MANIFEST_NAME, m.encode_manifest(manifest))
    return manifest


CONTENTS = {"__0_0.distcp": b"zero" * 100, "deep/__1_0.distcp": b"", ".metadata": b"meta"}


def test_a_manifest_survives_encoding_and_equal_manifests_give_equal_bytes(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    data = m.encode_manifest(manifest)
    assert m.decode_manifest(data) == manifest
    assert m.encode_manifest(m.decode_manifest(data)) == data
    assert m.read_manifest(tmp_path, sha256=hashlib.sha256(data).hexdigest()) == manifest
    assert m.manifest_sha256(tmp_path) == hashlib.sha256(data).hexdigest()
    assert manifest.size_bytes == 404


def test_the_bytes_of_format_1_are_frozen() -> None:
    file = m.CheckpointFile(path="a", size_bytes=1, sha256="0" * 64)
    manifest = m.Manifest(
        run="r", attempt=1, step=0, world_size=1, files=(file,), created_at_us=5, gangline_version="0.1.0"
    )
    assert json.loads(m.encode_manifest(manifest)) == {
        "run": "r",
        "attempt": 1,
        "step": 0,
        "world_size": 1,
        "files": [{"path": "a", "size_bytes": 1, "sha256": "0" * 64}],
        "data_position": None,
        "code_pin": None,
        "data_pins": None,
        "created_at_us": 5,
        "gangline_version": "0.1.0",
        "format": 1,
    }


def test_a_manifest_of_a_newer_format_says_to_upgrade() -> None:
    data = json.dumps({"format": 2, "files": {"of another": "shape"}}).encode()
    with pytest.raises(m.ManifestTooNew, match=r"format 2.*up to 1.*upgrade"):
        m.decode_manifest(data)


@pytest.mark.parametrize(
    "change",
    [{"step": -1}, {"attempt": 0}, {"world_size": 0}, {"files": [{"path": "a", "size_bytes": 1, "sha256": "xyz"}]}],
)
def test_impossible_values_are_no_manifest(tmp_path: Path, change: dict[str, object]) -> None:
    document = msgspec.to_builtins(make_checkpoint(tmp_path, CONTENTS))
    with pytest.raises(m.ManifestError):
        m.decode_manifest(json.dumps(document | change).encode())


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\xff\xfe", b'{"format": "1"}'])
def test_other_bytes_are_no_manifest(tmp_path: Path, data: bytes) -> None:
    (tmp_path / m.MANIFEST_NAME).write_bytes(data)
    with pytest.raises(m.ManifestError, match=r"manifest\.json: not a checkpoint manifest"):
        m.read_manifest(tmp_path)


def test_an_intact_checkpoint_verifies(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    m.verify_checkpoint(tmp_path, manifest)
    m.verify_checkpoint(tmp_path, manifest, sha256=m.manifest_sha256(tmp_path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    (tmp_path / "deep/__1_0.distcp").unlink()
    with pytest.raises(m.CheckpointFileMissing) as raised:
        m.verify_checkpoint(tmp_path, manifest)
    assert raised.value.path == "deep/__1_0.distcp"


def test_a_folder_in_a_files_place_is_a_missing_file(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    (tmp_path / ".metadata").unlink()
    (tmp_path / ".metadata").mkdir()
    with pytest.raises(m.CheckpointFileMissing):
        m.verify_checkpoint(tmp_path, manifest)


@pytest.mark.parametrize("size_bytes", [0, 399, 401])
def test_a_file_of_another_length_is_named_with_both_lengths(tmp_path: Path, size_bytes: int) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    os.truncate(tmp_path / "__0_0.distcp", size_bytes)
    with pytest.raises(m.CheckpointFileLengthWrong, match=rf"{size_bytes} bytes, but was saved with 400"):
        m.verify_checkpoint(tmp_path, manifest)


def test_one_flipped_bit_is_named(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    content = bytearray((tmp_path / "__0_0.distcp").read_bytes())
    content[200] ^= 1
    (tmp_path / "__0_0.distcp").write_bytes(content)
    with pytest.raises(m.CheckpointFileHashWrong) as raised:
        m.verify_checkpoint(tmp_path, manifest)
    assert raised.value.path == "__0_0.distcp"


@pytest.mark.parametrize("path", ["/etc/passwd", "../other/step-1/x", "a/../../x", "manifest.json", ".", "a\0b"])
def test_a_path_that_leaves_the_folder_is_refused_unread(tmp_path: Path, path: str) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    bad = m.CheckpointFile(path=path, size_bytes=0, sha256="0" * 64)
    with pytest.raises(m.CheckpointPathEscapes):
        m.verify_checkpoint(tmp_path, msgspec.structs.replace(manifest, files=(*manifest.files, bad)))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "step-40"
    folder.mkdir()
    manifest = make_checkpoint(folder, CONTENTS)
    (folder / ".metadata").rename(tmp_path / "elsewhere")
    (folder / ".metadata").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(m.CheckpointPathEscapes):
        m.verify_checkpoint(folder, manifest)


def test_a_file_listed_twice_is_refused(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    with pytest.raises(m.CheckpointPathEscapes, match="twice"):
        m.verify_checkpoint(tmp_path, msgspec.structs.replace(manifest, files=manifest.files * 2))


def test_another_manifest_than_the_recorded_one_is_refused(tmp_path: Path) -> None:
    manifest = make_checkpoint(tmp_path, CONTENTS)
    recorded = m.manifest_sha256(tmp_path)
    changed = msgspec.structs.replace(manifest, step=41)
    m.write_durably(tmp_path / m.MANIFEST_NAME, m.encode_manifest(changed))
    with pytest.raises(m.ManifestHashWrong):
        m.verify_checkpoint(tmp_path, manifest, sha256=recorded)
    with pytest.raises(m.ManifestHashWrong):
        m.read_manifest(tmp_path, sha256=recorded)


def test_a_missing_manifest_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(m.CheckpointFileMissing):
        m.read_manifest(tmp_path / "step-1")


def test_only_finished_checkpoints_are_found(tmp_path: Path) -> None:
    make_checkpoint(tmp_path / "step-1", CONTENTS)
    (tmp_path / "step-2").mkdir()
    assert m.find_manifests(tmp_path) == [tmp_path / "step-1"]
    assert m.find_manifests(tmp_path / "absent") == []


def test_a_durable_write_leaves_nothing_else(tmp_path: Path) -> None:
    m.write_durably(tmp_path / "a.json", b"1")
    m.write_durably(tmp_path / "a.json", b"2")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.json", b"2")]
    (tmp_path / "full").mkdir()
    with pytest.raises(OSError, match="full"):
        m.write_durably(tmp_path / "full", b"3")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "full"]
