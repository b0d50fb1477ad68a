"""What ranks do in the tests of checkpoints: a tiny training, saved and resumed in several ways."""

import os
import resource
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import gangline
from gangline.sdk import Checkpointer, CheckpointSaveFailed

SHARDED_ROWS = 7


class KillsItsProcess:
    """Dies the moment it is stored."""

    def __reduce__(self) -> tuple[Any, ...]:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError


class OddError(Exception):
    """An exception that cannot be sent to another process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.unpicklable = lambda: None


class CannotBeStored:
    def __reduce__(self) -> tuple[Any, ...]:
        raise OddError("this object cannot be stored")


class HasNoState:
    def state_dict(self) -> dict[str, Any]:
        raise OddError("there is no state to give")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise AssertionError(state)


class Training:
    """A linear model under AdamW with a schedule; under DDP where there is a process group."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        net = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
        self.model = DistributedDataParallel(net) if dist.is_initialized() else net
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=2, gamma=0.5)
        self.state: dict[str, Any] = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "progress": {"seen": 0},
        }

    def train(self, first_step: int, last_step: int) -> None:
        for step in range(first_step, last_step + 1):
            data = torch.randn(4, 5, generator=torch.Generator().manual_seed(step))
            self.optimizer.zero_grad()
            self.model(data).square().sum().backward()
            self.optimizer.step()
            self.schedule.step()
            self.state["progress"]["seen"] += 4

    def snapshot(self) -> dict[str, Any]:
        net = self.model.module if isinstance(self.model, DistributedDataParallel) else self.model
        moments = [value.tolist() for of in self.optimizer.state.values() for value in of.values()]
        return {
            "weights": {name: value.tolist() for name, value in net.state_dict().items()},
            "moments": moments,
            "lr": self.schedule.get_last_lr(),
            "seen": self.state["progress"]["seen"],
        }


def save_at(folder: str, steps: list[int], last_step: int) -> dict[str, Any]:
    training, checkpointer = Training(), Checkpointer(gangline.init("job", folder=folder))
    step = 0
    for save_step in steps:
        training.train(step + 1, save_step)
        checkpointer.save(training.state, step=save_step, data_position={"batch": save_step})
        step = save_step
    training.train(step + 1, last_step)
    return training.snapshot()


def resume_and_train(folder: str, last_step: int) -> tuple[Any, dict[str, Any]]:
    training, checkpointer = Training(), Checkpointer(gangline.init("job", folder=folder))
    resumed = checkpointer.resume(training.state)
    training.train(resumed.step + 1 if resumed else 1, last_step)
    found = (resumed.step, resumed.data_position, resumed.attempt, resumed.world_size) if resumed else None
    return found, training.snapshot()


def sharded(value: float) -> DTensor:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(SHARDED_ROWS * 3, dtype=torch.float32).reshape(SHARDED_ROWS, 3) * value
    return distribute_tensor(whole, mesh, [Shard(0)])


def save_sharded(folder: str) -> None:
    state = {"weights": sharded(2.0), f"rng-{dist.get_rank()}": torch.full((2,), float(dist.get_rank()))}
    Checkpointer(gangline.init("job", folder=folder)).save(state, step=1)


def resume_sharded(folder: str) -> tuple[list[list[float]], list[int]]:
    tensor = sharded(0.0)
    resumed = Checkpointer(gangline.init("job", folder=folder)).resume({"weights": tensor})
    assert resumed is not None
    return tensor.full_tensor().tolist(), list(tensor.to_local().shape)


def die_while_saving(folder: str) -> None:
    training, checkpointer = Training(), Checkpointer(gangline.init("job", folder=folder))
    training.train(1, 2)
    checkpointer.save(training.state, step=2)
    training.train(3, 4)
    if dist.get_rank() == 1:
        training.state["last"] = KillsItsProcess()
    checkpointer.save(training.state, step=4)


def die_before_the_manifest(folder: str, boundary: str) -> None:
    """Save step 1; save step 2 with rank 0 killed just before it would open, or rename, the manifest's file."""
    training, checkpointer = Training(), Checkpointer(gangline.init("job", folder=folder))
    training.train(1, 1)
    checkpointer.save(training.state, step=1)
    method = getattr(Path, boundary)

    def dying(path: Path, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method that it stands for
        if path.name.startswith(".manifest.json") and path.parent.name == "step-2":
            os.kill(os.getpid(), signal.SIGKILL)
        return method(path, *args, **kwargs)

    setattr(Path, boundary, dying)
    checkpointer.save(training.state, step=2)


def fail_and_save_again(folder: str, how: str) -> tuple[str, str]:
    """Save with rank 1 failing, then well; gives the first error and the folder of the second save."""
    training, checkpointer = Training(), Checkpointer(gangline.init("job", folder=folder))
    training.train(1, 1)
    state, limits = dict(training.state), resource.getrlimit(resource.RLIMIT_FSIZE)
    if dist.get_rank() == 1:
        state["faulty"] = {"store": CannotBeStored(), "state": HasNoState(), "disk": torch.ones(10_000)}[how]
        if how == "disk":  # writing fails past the limit, as on a full disk
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        checkpointer.save(state, step=1)
    except CheckpointSaveFailed as error:
        text = str(error)
    else:
        text = "saved"
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    return text, checkpointer.save(training.state, step=1).name


def save_different_steps(folder: str) -> None:
    Checkpointer(gangline.init("job", folder=folder)).save({"x": torch.ones(1)}, step=dist.get_rank())


def save_twice(folder: str) -> None:
    checkpointer = Checkpointer(gangline.init("job", folder=folder))
    checkpointer.save({"x": torch.ones(1)}, step=0)
    checkpointer.save({"x": torch.ones(1)}, step=0)


def resume_other_shape(folder: str) -> None:
    Checkpointer(gangline.init("job", folder=folder)).resume({"model": torch.nn.Linear(2, 2)})


def log_and_name_attempt(folder: str) -> int:
    run = gangline.init("job", folder=folder)
    run.log({"rank": dist.get_rank()}, step=1)
    return run.attempt


class PartlyTrained:
    """A module with a parameter that never gets a gradient, one that is frozen, and any optimizer."""

    def __init__(self, make_optimizer: Callable[[Any], torch.optim.Optimizer]) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.ModuleDict({name: torch.nn.Linear(3, 3) for name in ("used", "unused", "frozen")})
        self.model["frozen"].requires_grad_(requires_grad=False)
        self.optimizer = make_optimizer(self.model.parameters())
        self.state = {"model": self.model, "optimizer": self.optimizer}

    def train(self, steps: int) -> list[Any]:
        """Train, and give all weights, the optimizer's settings, and its state of the used layer."""
        for step in range(steps):
            self.optimizer.zero_grad()
            self.model["used"](torch.full((3,), float(step))).square().sum().backward()
            self.optimizer.step()
        state = self.optimizer.state_dict()
        return [
            [value.tolist() for value in self.model.state_dict().values()],
            state["param_groups"],
            [{k: v if v is None else v.tolist() for k, v in state["state"].get(i, {}).items()} for i in (0, 1)],
        ]


def exists_without(folder: Path, name: str) -> bool:
    return folder.is_dir() and not (folder / name).exists()
