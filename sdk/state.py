"""What of a training script's state is stored, and how it is put back.

Modules and optimizers go through torch.distributed.checkpoint.state_dict, which names parameters alike with and
without DDP or FSDP, and gives a fresh optimizer the state that the checkpoint is read into.
"""

from collections.abc import Collection, Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.checkpoint.stateful import Stateful

from gangline.schemas.errors import UsageError

State = dict[str, Any]
"""Modules, optimizers, objects with state_dict() and load_state_dict(), tensors, picklable values; dicts of these."""


def tree_to_save(state: State) -> State:
    """Give the tensors and values that `state` consists of; the tensors are those of the live objects.

    Leaves everything as it was. Raises `UsageError` for what cannot be stored.
    """
    return _tree(_checked(state), list(_modules(state)), None, "")


def tree_to_load(state: State, saved_keys: Collection[str]) -> State:
    """Give the tree that a checkpoint with these keys is read into; a fresh optimizer gets a state for that.

    Raises `UsageError` for what cannot be stored.
    """
    return _tree(_checked(state), list(_modules(state)), saved_keys, "")


def put_back(state: State, loaded: State) -> None:
    """Put what was read into a tree of `tree_to_load` back into the live objects, and values into `state` itself."""
    _put_back(state, loaded, list(_modules(state)))


def _checked(state: State) -> State:
    if not isinstance(state, dict):
        raise UsageError(f"the state must be a dict such as {{'model': model}}, got {type(state).__name__}")
    return state


def _tree(state: State, modules: list[torch.nn.Module], saved_keys: Collection[str] | None, prefix: str) -> State:
    tree: State = {}
    for key, value in state.items():
        if not isinstance(key, str):
            raise UsageError(f"the state has the key {key!r} of type {type(key).__name__}, but keys must be strings")
        if isinstance(value, torch.nn.Module):
            tree[key] = get_model_state_dict(value)
        elif isinstance(value, torch.optim.Optimizer):
            module = _owner(key, value, modules)
            if saved_keys is None:
                tree[key] = _saved_optimizer(module, value)
            else:
                tree[key] = _optimizer_to_load(module, value, saved_keys, f"{prefix}{key}.state.")
        elif isinstance(value, Stateful):
            tree[key] = value.state_dict()
        elif _is_branch(value):
            tree[key] = _tree(value, modules, saved_keys, f"{prefix}{key}.")
        else:
            tree[key] = value
    return tree


def _put_back(state: State, loaded: State, modules: list[torch.nn.Module]) -> None:
    for key, value in list(state.items()):
        if isinstance(value, torch.nn.Module):
            set_model_state_dict(value, loaded[key])
        elif isinstance(value, torch.optim.Optimizer):
            set_optimizer_state_dict(
                _owner(key, value, modules),
                value,
                loaded[key],
                options=StateDictOptions(strict=False),  # parameters never trained have no state
            )
        elif isinstance(value, Stateful):
            value.load_state_dict(loaded[key])
        elif _is_branch(value):
            _put_back(value, loaded[key], modules)
        else:
            state[key] = loaded[key]


def _is_branch(value: object) -> bool:
    return type(value) is dict and bool(value) and all(isinstance(key, str) for key in value)


def _modules(state: State) -> Iterator[torch.nn.Module]:
    for value in state.values():
        if isinstance(value, torch.nn.Module):
            yield value
        elif _is_branch(value):
            yield from _modules(value)


def _owner(key: str, optimizer: torch.optim.Optimizer, modules: list[torch.nn.Module]) -> torch.nn.Module:
    wanted = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    for module in modules:
        if wanted <= {id(parameter) for parameter in module.parameters()}:
            return module
    raise UsageError(
        f"the optimizer {key!r} has parameters that no single module of the state has: "
        "save the module that it trains in the same dict, such as {'model': model, 'optimizer': optimizer}",
    )


def _saved_optimizer(module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State:
    fresh = not optimizer.state
    tree: State = dict(get_optimizer_state_dict(module, optimizer))
    if fresh:
        # To give it a state, torch has just counted a step that the training never took: undo it in both places.
        for of_parameter in tree["state"].values():
            if isinstance(step := of_parameter.get("step"), torch.Tensor):
                of_parameter["step"] = torch.zeros_like(step)
        optimizer.state.clear()
    return tree


def _optimizer_to_load(
    module: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    saved_keys: Collection[str],
    prefix: str,
) -> State:
    tree: State = dict(get_optimizer_state_dict(module, optimizer))
    # A parameter that never had a gradient (unused, or frozen at first) has no state in the checkpoint, but torch has
    # just given it one here.
    saved = {key for key in saved_keys if key.startswith(prefix)}
    tree["state"] = {
        name: of_parameter
        for name, of_parameter in tree["state"].items()
        if any(f"{prefix}{name}.{kind}" in saved for kind in of_parameter)
    }
    return tree
