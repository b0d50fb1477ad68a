"""Ids that are derived from what is on the log."""

import base64
import hashlib

from gangline.events.ids import derived, job_id

COMMANDS = 500


def test_the_id_of_a_job_is_twelve_characters_of_the_digest_in_base32() -> None:
    for number in range(COMMANDS):
        command_id = derived("log", number, "command")
        digest = hashlib.sha256(b"log/" + command_id).digest()
        assert job_id("log", command_id) == "job-" + base64.b32encode(digest)[:12].decode().lower()
