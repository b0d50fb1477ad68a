"""Real ranks for tests: processes with a gloo group between them, forked from a server that has torch loaded already.

Importing torch takes seconds; forked from the server a rank starts in a tenth of one.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

JOIN_TIMEOUT_S = 60

PRELOADED = ["torch", "torch._dynamo", "torch.distributed.checkpoint", "torch.distributed.tensor", "gangline.sdk.state"]


class Ended(NamedTuple):
    """How a rank ended: what its function gave, or what it raised, or the signal that killed it."""

    value: Any
    error: tuple[str, str] | None
    killed_by: int | None


def run_ranks(
    size: int,
    work: Callable[..., Any],
    *args: object,
    store: Path,
    environ: dict[str, str] | None = None,
) -> list[Ended]:
    """Run `work(*args)` on `size` ranks and wait for all; `store` is a file that does not exist yet."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    processes = []
    for rank in range(size):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(
            target=_rank_main,
            args=(_Rank(rank, size, store, environ or {}, sender), work, args),
        )
        process.start()
        sender.close()
        processes.append((process, receiver))
    return [_ended(process, receiver) for process, receiver in processes]


def _ended(process: Any, receiver: Connection) -> Ended:  # noqa: ANN401 - a process of the forkserver's context
    value, error = None, None
    try:
        if not receiver.poll(JOIN_TIMEOUT_S):
            process.kill()
            raise AssertionError("a rank hangs")
        value, error = receiver.recv()
    except EOFError:
        pass
    process.join(JOIN_TIMEOUT_S)
    code = process.exitcode
    return Ended(value, error, -code if code is not None and code < 0 else None)


class _Rank(NamedTuple):
    rank: int
    size: int
    store: Path
    environ: dict[str, str]
    sender: Connection


def _rank_main(me: _Rank, work: Callable[..., Any], args: tuple[object, ...]) -> None:
    import torch
    import torch.distributed as dist

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for name in [name for name in os.environ if name.startswith(("GANGLINE_", "TORCHELASTIC_"))]:
        del os.environ[name]
    os.environ.update(
        {
            "RANK": str(me.rank),
            "LOCAL_RANK": str(me.rank),
            "WORLD_SIZE": str(me.size),
            "LOCAL_WORLD_SIZE": str(me.size),
        },
    )
    os.environ.update(me.environ)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=me.store.as_uri(), rank=me.rank, world_size=me.size)
    try:
        me.sender.send((work(*args), None))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        me.sender.send((None, (type(error).__name__, str(error))))
    me.sender.close()
    os._exit(0)  # a group whose other end was killed may wait in its destructor
