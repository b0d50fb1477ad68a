"""What launcher and rank tell each other: offers to resume from, and rejections."""

from pathlib import Path

import pytest

from gangline.schemas import launch
from gangline.schemas.errors import UsageError

OFFER = launch.ResumeOffer(step=5, uri="file:///data/a%20b/step-5", manifest_sha256="ab" * 32)


def test_offers_survive_the_environment_and_only_the_newest_are_kept() -> None:
    assert launch.decode_resume(launch.encode_resume([OFFER])) == [OFFER]
    assert len(launch.decode_resume(launch.encode_resume([OFFER] * 1000))) == launch.MAX_RESUME_OFFERS
    assert launch.decode_resume("") == []
    assert launch.decode_resume("[]") == []


@pytest.mark.parametrize("value", ["{}", "[", '[{"step": 1}]', '[{"step": 1, "uri": "u", "manifest_sha256": "no"}]'])
def test_a_malformed_offer_is_a_usage_error(value: str) -> None:
    with pytest.raises(UsageError, match="GANGLINE_RESUME is malformed"):
        launch.decode_resume(value)


def test_a_rejection_is_left_once_for_the_agent(tmp_path: Path) -> None:
    rejection = launch.Rejection(uri=OFFER.uri, manifest_sha256=OFFER.manifest_sha256, step=5, reason="a bit flipped")
    assert launch.write_rejection(tmp_path, rejection) == tmp_path / "rejected-5-abababab.json"
    launch.write_rejection(tmp_path, rejection)
    assert launch.read_rejections(tmp_path) == [rejection]


def test_a_file_uri_names_a_local_folder() -> None:
    assert launch.folder_of_uri(OFFER.uri) == Path("/data/a b/step-5")
    assert launch.folder_of_uri(Path("/data/ü/step-1").as_uri()) == Path("/data/ü/step-1")


@pytest.mark.parametrize("uri", ["s3://bucket/x", "/data/x", "file://host/x", "file:x", ""])
def test_other_uris_are_refused_by_name(uri: str) -> None:
    with pytest.raises(UsageError, match="cannot read a checkpoint"):
        launch.folder_of_uri(uri)
