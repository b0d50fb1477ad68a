"""Checkpoints with real ranks: whole or absent, never overwritten, resumed exactly, and only if nothing changed."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import gangline
from gangline.schemas.errors import UsageError
from gangline.schemas.launch import ResumeOffer, encode_resume, read_rejections
from gangline.schemas.manifest import manifest_sha256, read_manifest, verify_checkpoint
from gangline.schemas.spool import read_spool, spool_path
from gangline.sdk import Checkpointer, CheckpointExists, CheckpointLoadFailed
from gangline.sdk import checkpoint as checkpoint_module
from tests.sdk import scenarios
from tests.sdk.forked import Ended, run_ranks


@pytest.fixture(autouse=True)
def no_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("GANGLINE_JOB_ID", "GANGLINE_RUN", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    yield
    if gangline.sdk.run._active is not None:
        gangline.sdk.run._active.finish()


def values(ended: list[Ended]) -> list[Any]:
    assert [(rank.error, rank.killed_by) for rank in ended] == [(None, None)] * len(ended)
    return [rank.value for rank in ended]


def steps_of(attempt: Path) -> list[str]:
    return sorted(manifest.parent.name for manifest in attempt.glob("step-*/manifest.json"))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("size", [2, 1])
def test_resumed_training_equals_uninterrupted_training_bit_for_bit(tmp_path: Path, size: int) -> None:
    whole = values(run_ranks(size, scenarios.save_at, str(tmp_path / "whole"), [], 6, store=tmp_path / "s1"))
    values(run_ranks(size, scenarios.save_at, str(tmp_path), [2, 4], 5, store=tmp_path / "s2"))
    ended = values(run_ranks(size, scenarios.resume_and_train, str(tmp_path), 6, store=tmp_path / "s3"))
    assert [found for found, _ in ended] == [(4, {"batch": 4}, 1, size)] * size
    assert [snapshot for _, snapshot in ended] == whole


def test_saving_does_not_change_the_training_even_before_its_first_step(tmp_path: Path) -> None:
    plain = scenarios.Training()
    plain.train(1, 3)
    assert scenarios.save_at(str(tmp_path), [0, 1, 2, 3], 3) == plain.snapshot()
    gangline.sdk.run.active_run().finish()
    for manifest in (tmp_path / "job" / "attempt-1").glob("step-[123]/manifest.json"):
        manifest.unlink()
    found, snapshot = scenarios.resume_and_train(str(tmp_path), 3)
    assert found == (0, {"batch": 0}, 1, 1)
    assert snapshot == plain.snapshot()


def test_two_ranks_checkpoint_resumes_without_a_process_group(tmp_path: Path) -> None:
    values(run_ranks(2, scenarios.save_at, str(tmp_path), [3], 3, store=tmp_path / "store"))
    found, _ = scenarios.resume_and_train(str(tmp_path), 3)
    assert found == (3, {"batch": 3}, 1, 2)


@pytest.mark.parametrize(("saved_by", "resumed_by"), [(2, 3), (3, 1)])
def test_sharded_tensors_resume_with_another_number_of_ranks(tmp_path: Path, saved_by: int, resumed_by: int) -> None:
    values(run_ranks(saved_by, scenarios.save_sharded, str(tmp_path), store=tmp_path / "s1"))
    ended = values(run_ranks(resumed_by, scenarios.resume_sharded, str(tmp_path), store=tmp_path / "s2"))
    whole = [[2.0 * (3 * row + column) for column in range(3)] for row in range(scenarios.SHARDED_ROWS)]
    assert [tensor for tensor, _ in ended] == [whole] * resumed_by
    assert sum(shape[0] for _, shape in ended) == scenarios.SHARDED_ROWS


def test_the_manifest_lists_every_file_as_it_is_on_the_disk(tmp_path: Path) -> None:
    values(run_ranks(2, scenarios.save_at, str(tmp_path), [3], 3, store=tmp_path / "store"))
    folder = tmp_path / "job" / "attempt-1" / "step-3"
    manifest = read_manifest(folder)
    verify_checkpoint(folder, manifest)
    assert {file.path for file in manifest.files} == {p.name for p in folder.iterdir()} - {"manifest.json"}
    assert (manifest.run, manifest.attempt, manifest.step, manifest.world_size) == ("job", 1, 3, 2)


def test_a_rank_killed_while_saving_leaves_no_manifest_and_resume_takes_the_one_before(tmp_path: Path) -> None:
    first, second = run_ranks(2, scenarios.die_while_saving, str(tmp_path), store=tmp_path / "s1")
    assert second.killed_by == 9
    assert first.error is not None
    assert first.error[0] == "CheckpointSaveFailed"
    attempt = tmp_path / "job" / "attempt-1"
    assert scenarios.exists_without(attempt / "step-4", "manifest.json")
    assert steps_of(attempt) == ["step-2"]
    ended = values(run_ranks(2, scenarios.resume_and_train, str(tmp_path), 2, store=tmp_path / "s2"))
    assert [found[0] for found, _ in ended] == [2, 2]


@pytest.mark.parametrize("boundary", ["open", "rename"])
def test_rank_0_killed_when_only_the_manifest_is_missing_leaves_no_checkpoint(tmp_path: Path, boundary: str) -> None:
    first, second = run_ranks(2, scenarios.die_before_the_manifest, str(tmp_path), boundary, store=tmp_path / "s1")
    assert first.killed_by == 9
    assert second.error is not None
    assert second.error[0] == "CheckpointSaveFailed"
    attempt = tmp_path / "job" / "attempt-1"
    assert {"__0_0.distcp", "__1_0.distcp", ".metadata"} <= {path.name for path in (attempt / "step-2").iterdir()}
    assert steps_of(attempt) == ["step-1"]
    ended = values(run_ranks(2, scenarios.resume_and_train, str(tmp_path), 1, store=tmp_path / "s2"))
    assert [found[0] for found, _ in ended] == [1, 1]


@pytest.mark.parametrize(
    "make_optimizer",
    [
        lambda parameters: torch.optim.AdamW(parameters, lr=0.1),
        lambda parameters: torch.optim.SGD(parameters, lr=0.01),
        lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9),
        lambda parameters: torch.optim.Adagrad(parameters, lr=0.1),
    ],
    ids=["AdamW", "SGD", "SGD with momentum", "Adagrad"],
)
@pytest.mark.parametrize("trained_steps", [0, 2])
def test_parameters_that_never_had_a_gradient_resume_as_they_were(
    tmp_path: Path,
    make_optimizer: Any,  # noqa: ANN401
    trained_steps: int,
) -> None:
    checkpointer = Checkpointer(gangline.init("job", folder=tmp_path))
    whole, resumed = (scenarios.PartlyTrained(make_optimizer) for _ in "ab")
    whole.train(trained_steps)
    checkpointer.save(whole.state, step=trained_steps)
    checkpointer.resume(resumed.state)
    assert resumed.train(3) == whole.train(3)


@pytest.mark.parametrize(
    ("how", "reason"),
    [("store", "this object cannot be stored"), ("state", "there is no state"), ("disk", "File too large")],
)
def test_what_fails_on_one_rank_fails_on_all_and_the_next_save_takes_a_fresh_folder(
    tmp_path: Path,
    how: str,
    reason: str,
) -> None:
    ended = values(run_ranks(2, scenarios.fail_and_save_again, str(tmp_path), how, store=tmp_path / "store"))
    folders = {"step-1"} if how == "state" else {"step-1.2"}  # with no state to store, no folder was made
    for text, folder in ended:
        assert "rank 1" in text
        assert reason in text
        assert folder in folders
    assert set(steps_of(tmp_path / "job" / "attempt-1")) == folders


def test_ranks_that_save_different_steps_are_all_told(tmp_path: Path) -> None:
    ended = run_ranks(2, scenarios.save_different_steps, str(tmp_path), store=tmp_path / "store")
    assert [rank.error and rank.error[0] for rank in ended] == ["UsageError", "UsageError"]
    assert not (tmp_path / "job").exists()


def test_a_finished_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    ended = run_ranks(2, scenarios.save_twice, str(tmp_path), store=tmp_path / "store")
    assert [rank.error and rank.error[0] for rank in ended] == ["CheckpointExists", "CheckpointExists"]
    folder = tmp_path / "job" / "attempt-1" / "step-0"
    verify_checkpoint(folder, read_manifest(folder))


def test_a_state_of_another_shape_is_an_error_on_all_ranks(tmp_path: Path) -> None:
    values(run_ranks(2, scenarios.save_at, str(tmp_path), [1], 1, store=tmp_path / "s1"))
    ended = run_ranks(2, scenarios.resume_other_shape, str(tmp_path), store=tmp_path / "s2")
    assert [rank.error and rank.error[0] for rank in ended] == ["CheckpointLoadFailed", "CheckpointLoadFailed"]


def offers_of(attempt: Path, steps: list[int]) -> list[ResumeOffer]:
    return [
        ResumeOffer(
            step=step, uri=(folder := attempt / f"step-{step}").as_uri(), manifest_sha256=manifest_sha256(folder)
        )
        for step in steps
    ]


def launched(tmp_path: Path, offers: list[ResumeOffer]) -> dict[str, str]:
    (tmp_path / "spool").mkdir(exist_ok=True)
    return {
        "GANGLINE_JOB_ID": "job-abc",
        "GANGLINE_ATTEMPT": "2",
        "GANGLINE_CHECKPOINT_DIR": str(tmp_path / "checkpoints" / "job-abc" / "attempt-2"),
        "GANGLINE_SPOOL_DIR": str(tmp_path / "spool"),
        "GANGLINE_RESUME": encode_resume(offers),
    }


def test_inside_gangline_a_damaged_shard_is_rejected_with_the_reason_and_the_one_before_is_taken(
    tmp_path: Path,
) -> None:
    values(run_ranks(2, scenarios.save_at, str(tmp_path), [2, 4, 6], 6, store=tmp_path / "s1"))
    attempt = tmp_path / "job" / "attempt-1"
    offers = offers_of(attempt, [6, 4, 2])
    (attempt / "step-6" / "manifest.json").write_text("{}")
    flip_a_bit(attempt / "step-4" / "__1_0.distcp")
    environ = launched(tmp_path, offers)
    ended = values(
        run_ranks(2, scenarios.resume_and_train, str(tmp_path), 2, store=tmp_path / "s2", environ=environ),
    )
    assert [found for found, _ in ended] == [(2, {"batch": 2}, 1, 2)] * 2
    reasons = {(r.step, r.uri, r.manifest_sha256): r.reason for r in read_rejections(tmp_path / "spool")}
    assert set(reasons) == {(o.step, o.uri, o.manifest_sha256) for o in offers[:2]}
    assert "manifest.json has SHA-256" in reasons[6, offers[0].uri, offers[0].manifest_sha256]
    assert "__1_0.distcp has SHA-256" in reasons[4, offers[1].uri, offers[1].manifest_sha256]


def test_inside_gangline_saves_go_where_the_launcher_says_and_only_what_it_names_is_resumed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in launched(tmp_path, []).items():
        monkeypatch.setenv(name, value)
    scenarios.save_at("ignored", [1, 2], 2)
    attempt = tmp_path / "checkpoints" / "job-abc" / "attempt-2"
    assert steps_of(attempt) == ["step-1", "step-2"]
    assert read_manifest(attempt / "step-1").attempt == 2
    assert Checkpointer().resume({"x": torch.ones(1)}) is None
    monkeypatch.setenv("GANGLINE_RESUME", encode_resume(offers_of(attempt, [1])))
    state = scenarios.Training().state
    resumed = Checkpointer().resume(state)
    assert resumed is not None
    assert (resumed.step, state["progress"]["seen"]) == (1, 4)


@pytest.mark.parametrize("fault", ["cut", "gone", "manifest", "later step"])
def test_outside_gangline_the_newest_good_checkpoint_is_taken(tmp_path: Path, fault: str) -> None:
    scenarios.save_at(str(tmp_path), [1, 2, 10], 10)
    newest = tmp_path / "job" / "attempt-1" / "step-10"
    shard = newest / "__0_0.distcp"
    if fault == "cut":
        shard.write_bytes(shard.read_bytes()[:-1])
    elif fault == "gone":
        shard.unlink()
    elif fault == "manifest":
        (newest / "manifest.json").write_bytes(b"\0" * 100)
    else:
        manifest = json.loads((newest / "manifest.json").read_text())
        (newest / "manifest.json").write_text(json.dumps(manifest | {"step": 11}))
    resumed = Checkpointer().resume(scenarios.Training().state)
    assert resumed is not None
    assert resumed.step == 2


def test_outside_gangline_a_later_attempt_counts_more_than_a_later_step(tmp_path: Path) -> None:
    scenarios.save_at(str(tmp_path), [8], 8)
    gangline.sdk.run.active_run().finish()
    later = Checkpointer(gangline.init("job", folder=tmp_path))
    later._run.__dict__["place"] = gangline.sdk.place.claim_place(tmp_path / "job", {"WORLD_SIZE": "2"})
    later.save(scenarios.Training().state, step=5)
    resumed = later.resume(scenarios.Training().state)
    assert resumed is not None
    assert (resumed.step, resumed.attempt) == (5, 2)


def test_missing_storage_is_an_error_not_a_fresh_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer = ResumeOffer(step=1, uri=(tmp_path / "not mounted" / "a" / "b").as_uri(), manifest_sha256="0" * 64)
    for name, value in launched(tmp_path, [offer]).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(gangline.schemas.errors.GanglineError, match="is the checkpoints' storage mounted"):
        Checkpointer(gangline.init()).resume({"x": torch.ones(1)})
    assert read_rejections(tmp_path / "spool") == []


def test_a_newer_manifest_is_refused_by_name_and_not_rejected_as_damaged(tmp_path: Path) -> None:
    scenarios.save_at(str(tmp_path), [1], 1)
    path = tmp_path / "job" / "attempt-1" / "step-1" / "manifest.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(gangline.schemas.errors.GanglineError, match="upgrade gangline"):
        Checkpointer().resume(scenarios.Training().state)


@pytest.mark.parametrize(
    ("state", "step", "position", "text"),
    [
        ({}, -1, None, "step is -1"),
        ({}, 1.5, None, "step is 1.5"),
        ({}, True, None, "step is True"),
        ({}, 1, [1], "must be a JSON object"),
        ({}, 1, {"a": (1, 2)}, "lists, not tuples"),
        ({}, 1, {"a": float("nan")}, "no NaN"),
        ({}, 1, {"a": object()}, "must be a JSON object"),
        ([], 1, None, "the state must be a dict"),
        ({1: 2}, 1, None, "keys must be strings"),
    ],
)
def test_what_cannot_be_saved_is_named(tmp_path: Path, state: Any, step: Any, position: Any, text: str) -> None:  # noqa: ANN401
    checkpointer = Checkpointer(gangline.init("job", folder=tmp_path))
    with pytest.raises(UsageError, match=text):
        checkpointer.save(state, step=step, data_position=position)
    assert list(tmp_path.iterdir()) == []


def test_an_optimizer_without_its_module_is_refused(tmp_path: Path) -> None:
    optimizer = torch.optim.SGD(torch.nn.Linear(2, 2).parameters(), lr=0.1)
    with pytest.raises(UsageError, match="save the module that it trains in the same dict"):
        Checkpointer(gangline.init("job", folder=tmp_path)).save({"optimizer": optimizer}, step=1)


def test_several_ranks_without_a_process_group_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(UsageError, match="init_process_group"):
        Checkpointer(gangline.init("job", folder=tmp_path)).save({"x": torch.ones(1)}, step=1)


def test_a_checkpointer_before_init_says_what_to_call() -> None:
    with pytest.raises(UsageError, match=r"call gangline\.init\(\) first"):
        Checkpointer()


def test_tensors_are_loaded_in_place_and_values_replaced(tmp_path: Path) -> None:
    checkpointer = Checkpointer(gangline.init("job", folder=tmp_path))
    checkpointer.save({"a": {"tensor": torch.ones(3), "text": "x"}, "none": None, "empty": {}}, step=1)
    tensor = torch.zeros(3)
    state: dict[str, Any] = {"a": {"tensor": tensor, "text": "y"}, "none": 3, "empty": {}}
    checkpointer.resume(state)
    assert state == {"a": {"tensor": tensor, "text": "x"}, "none": None, "empty": {}}
    assert tensor.tolist() == [1, 1, 1]


def test_a_loss_that_can_still_be_differentiated_is_logged_without_a_warning(tmp_path: Path) -> None:
    run = gangline.init("job", folder=tmp_path)
    run.log({"loss": torch.ones(1, requires_grad=True) * 2, "count": torch.tensor(3)}, step=1)
    assert read_spool(spool_path(run.place.spool_dir, 0)).points[0].values == {"loss": 2.0, "count": 3.0}
    with pytest.raises(UsageError, match=r"metric 'loss' is a torch\.Tensor that is no one number"):
        run.log({"loss": torch.ones(2)}, step=2)


def test_the_errors_are_one_tree() -> None:
    for error in (CheckpointExists, CheckpointLoadFailed, gangline.CheckpointSaveFailed):
        assert issubclass(error, gangline.schemas.errors.GanglineError)


def test_a_checkpoint_deleted_while_it_was_resumed_was_said_to_be_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gangline.init("job", folder=tmp_path)
    checkpointer = Checkpointer()
    folder = checkpointer.save({"a": torch.ones(2)}, step=1)
    verified = checkpoint_module._verified

    def verified_then_deleted(*arguments: Any) -> Any:  # noqa: ANN401 - as what it stands before
        found = verified(*arguments)
        shutil.rmtree(folder)
        return found

    monkeypatch.setattr(checkpoint_module, "_verified", verified_then_deleted)
    with pytest.raises(CheckpointLoadFailed, match=r"verified but cannot be loaded: .*No such file.*leave the folder"):
        checkpointer.resume({"a": torch.zeros(2)})
