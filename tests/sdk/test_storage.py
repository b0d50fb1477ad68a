"""Storage of checkpoints: what it says when the disk does not take what is written."""

import resource
import signal
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from gangline.sdk.storage import HashingWriter


@pytest.mark.filterwarnings("ignore")
def test_a_disk_that_fills_within_an_archive_is_named_instead_of_torchs_confusion(tmp_path: Path) -> None:
    handler, limits = signal.signal(signal.SIGXFSZ, signal.SIG_IGN), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))  # writing fails past it, as on a full disk
    try:
        with pytest.raises(CheckpointException) as raised:
            save({"weights": torch.ones(10_000)}, storage_writer=HashingWriter(tmp_path), no_dist=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert "OSError: [Errno 27] File too large" in str(raised.value)
