"""An examination names what is wrong with a node, and what was looked at where nothing is."""

from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
from msgspec.structs import replace

from gangline.agents import inventory
from gangline.agents.check import examine, gpu_faults
from gangline.agents.inventory import Inventory
from gangline.events.types import Gpu


def declared() -> Inventory:
    return inventory.take(node_id="n", address="127.0.0.1", gpus=2, gpu_type="declared")


def test_a_node_as_it_registered_is_healthy(tmp_path: Path) -> None:
    found = examine(declared(), tmp_path)
    assert found.healthy, found.report
    assert "GiB of disk free; " in found.report
    assert list(tmp_path.iterdir()) == [], "what was written to try the disk is left there"


def test_less_memory_or_cpus_than_registered_is_a_fault(tmp_path: Path) -> None:
    has = declared()
    found = examine(replace(has, memory_bytes=has.memory_bytes + (8 << 30), cpu_milli=1_000_000), tmp_path)
    assert not found.healthy
    assert "GiB of memory" in found.report
    assert "1000 were registered" in found.report
    assert "disk" not in found.report, "what is well is not told with what is not"


def test_a_disk_that_cannot_be_written_is_a_fault(tmp_path: Path) -> None:
    found = examine(declared(), tmp_path / "gone")
    assert not found.healthy
    assert "cannot be written and read (No such file or directory)" in found.report


def test_a_gpu_that_is_gone_is_a_fault(tmp_path: Path) -> None:
    has = replace(declared(), devices=True, gpus=(Gpu(index=3, uuid="GPU-of-another-machine"),))
    found = examine(has, tmp_path)
    assert not found.healthy
    assert "GPU 3 (GPU-of-another-machine) is not found any more" in found.report


@pytest.mark.parametrize(
    ("errors", "rows", "text"),
    [
        (2, (0, 0, 0, 0), "2 uncorrected memory errors"),
        (0, (0, 1, 0, 1), "could not remap"),
        (0, (0, 1, 1, 0), "a row of memory to be remapped"),
        (0, (5, 0, 0, 0), None),
        (None, None, None),
    ],
)
def test_what_nvml_holds_against_a_gpu_is_told(
    monkeypatch: pytest.MonkeyPatch, errors: int | None, rows: tuple[int, ...] | None, text: str | None
) -> None:
    """NVML stands in for a broken GPU, which no test can have."""

    def give(value: object) -> object:
        if value is None:
            raise pynvml.NVMLError_NotSupported
        return value

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlShutdown", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda _uuid: SimpleNamespace())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTotalEccErrors", lambda *_: give(errors))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetRemappedRows", lambda *_: give(rows))
    faults = gpu_faults(Gpu(index=1, uuid="GPU-1"))
    assert (len(faults) == 1 and text in faults[0]) if text else not faults
