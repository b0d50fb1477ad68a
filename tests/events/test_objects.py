"""The object store: one set of claims, on a folder and on S3 (a real HTTP server, moto's)."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from gangline.events import objects
from gangline.events.objects import FileStore, ObjectDamaged, ObjectMissing, ObjectStore, ObjectStoreUnavailable
from gangline.schemas.errors import UsageError

DATA = b"content" * 1000
SHA256 = hashlib.sha256(DATA).hexdigest()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        environment.setenv("AWS_ACCESS_KEY_ID", "test")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "test")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield "s3://bucket/some/prefix"
    server.stop()


@pytest.fixture(params=["file", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    url = request.getfixturevalue("s3") if request.param == "s3" else (tmp_path / "store").as_uri()
    return objects.open_store(url)


def test_what_is_put_comes_back_by_its_uri_and_hash(store: ObjectStore, tmp_path: Path) -> None:
    stored = store.put(DATA)
    assert (stored.sha256, stored.size_bytes) == (SHA256, len(DATA))
    assert objects.get(stored.uri, stored.sha256, limit_bytes=len(DATA)) == DATA
    (tmp_path / "file").write_bytes(DATA)
    assert store.put(tmp_path / "file") == stored


def test_other_content_than_the_hash_says_is_damage(store: ObjectStore) -> None:
    stored = store.put(DATA)
    with pytest.raises(ObjectDamaged, match="was recorded with 000"):
        objects.get(stored.uri, "0" * 64, limit_bytes=1 << 20)


def test_an_object_over_its_limit_is_not_read_to_its_end(store: ObjectStore) -> None:
    stored = store.put(DATA)
    with pytest.raises(ObjectDamaged, match="larger than 10 bytes"):
        objects.get(stored.uri, stored.sha256, limit_bytes=10)


def test_a_missing_object_is_named(store: ObjectStore) -> None:
    uri = store.put(DATA).uri[:-3] + "xyz"
    with pytest.raises(ObjectMissing, match="xyz does not exist"):
        objects.get(uri, SHA256, limit_bytes=10)


def test_a_damaged_file_is_mended_by_storing_it_again(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    path = Path(store.put(DATA).uri.removeprefix("file://"))
    path.write_bytes(b"damaged")
    assert store.put(DATA).sha256 == SHA256
    assert path.read_bytes() == DATA
    assert [entry.name for entry in path.parent.iterdir()] == [SHA256]


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ObjectStoreUnavailable, match="make the folder writable"):
        FileStore(tmp_path / "file").put(DATA)


def test_an_s3_that_is_not_there_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ObjectStoreUnavailable, match=r"s3://bucket/.*AWS_ENDPOINT_URL"):
        objects.open_store("s3://bucket").put(DATA)


@pytest.mark.parametrize("url", ["ftp://x/y", "file://host/x", "s3://"])
def test_a_store_that_no_backend_knows_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="use file:///absolute/path or s3://bucket/prefix"):
        objects.open_store(url)


def test_a_file_that_was_stored_is_readable_by_agents_of_other_users(tmp_path: Path) -> None:
    path = Path(FileStore(tmp_path).put(DATA).uri.removeprefix("file://"))
    assert path.stat().st_mode & 0o777 == 0o644
