"""Turns a binding into the plan of a share: the ranks' commands and the environment that torchrun would give them.

Names and meanings are those of torch 2.15, torch/distributed/elastic/agent/server/local_elastic_agent.py and
torch/distributed/run.py.
"""

import errno
import os
import secrets
import shutil
import socket
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from gangline.agents.bindings import Binding
from gangline.agents.inventory import Inventory
from gangline.agents.processes import TOKEN
from gangline.agents.run_folder import Plan, PlannedRank, RunFolder
from gangline.events import bundle, objects
from gangline.events.decisions import GangBound
from gangline.events.types import Blame, Share
from gangline.schemas import launch
from gangline.schemas.errors import GanglineError, UsageError

PASSED_ON = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR LD_LIBRARY_PATH VIRTUAL_ENV CONDA_PREFIX CUDA_HOME CUDA_PATH "
    "XDG_CACHE_HOME XDG_RUNTIME_DIR HF_HOME TORCH_HOME OMP_NUM_THREADS TORCH_NCCL_ASYNC_ERROR_HANDLING "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CUDA_DEVICE_ORDER".split()
)
PASSED_ON_PREFIXES = ("LC_", "NCCL_", "GLOO_", "UCX_", "FI_", "NVIDIA_")
"""What ranks get of the agent's environment: where things are on this node, and how its network is set up.

Anything else stays behind, for it may be a secret of the agent (AWS_*, tokens, proxies with passwords) or belong to
its own Python (PYTHONPATH). A job's own variables come with its spec.
"""

_NAMED_FOLDERS = 6

ROLE = "default"
"""The role that torchrun gives to ranks that have none."""


class LaunchRefused(GanglineError):
    """This share cannot be launched here; `retryable` unless it could not be anywhere, at any time."""

    def __init__(self, message: str, *, retryable: bool, blame: Blame) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.blame: Blame = blame


def prepare(binding: Binding, inventory: Inventory, folder: RunFolder, home: Path) -> Plan:
    """Unpack the code into the run folder, check what the ranks need, and return the plan.

    Raises LaunchRefused, OSError.
    """
    gang = binding.gang
    used = {gpu for share in binding.shares for gpu in share.gpus}
    unknown = used - {gpu.index for gpu in inventory.gpus}
    if unknown:
        message = f"node {inventory.node_id} has no GPU {sorted(unknown)} any more"
        raise LaunchRefused(message, retryable=True, blame="node")
    checkpoints = checkpoint_folder(gang.checkpoints, home, gang.job_id, gang.attempt)
    has_rank_0 = any(share.first_rank == 0 for share in binding.shares)
    if has_rank_0:
        check_port(gang.master_port, inventory.node_id)
    unpack_code(binding, folder)
    token = secrets.token_hex(16)
    ranks: list[PlannedRank] = []
    for share in binding.shares:
        command = command_of(gang, share)
        command_env = {**passed_on(os.environ), **gang.env}
        program = find_program(command[0], folder.work, command_env["PATH"], inventory.node_id)
        for rank in share.ranks:
            env = {
                **defaults(share_size=len(share.ranks)),
                **command_env,
                **torchrun_environment(gang, share, rank, folder.path),
                **devices(share, inventory),
                **gangline_environment(gang, folder, checkpoints),
                TOKEN: token,
                "PWD": str(folder.work),
            }
            ranks.append(PlannedRank(rank=rank, program=str(program), argv=command, env=env, role=share.role))
    return Plan(
        job_id=gang.job_id,
        attempt=gang.attempt,
        token=token,
        cause=binding.cause,
        grace_us=gang.grace_us,
        directory=str(folder.work),
        checkpoints=str(checkpoints) if has_rank_0 else None,
        ranks=tuple(ranks),
        idle_timeout_us=gang.idle_timeout_us,
        gpus=tuple(sorted(used)) if inventory.devices else (),
        world_size=gang.world_size,
        pace=str(checkpoints / "pace"),
    )


def command_of(gang: GangBound, share: Share) -> tuple[str, ...]:
    """Return what the ranks of a share run: their role's command, or the job's."""
    return next((role.command for role in gang.roles if role.name == share.role), gang.command)


def passed_on(environment: Mapping[str, str]) -> dict[str, str]:
    """Return what ranks get of the agent's environment, PATH beginning with the agent's virtual environment if any."""
    kept = {
        name: value for name, value in environment.items() if name in PASSED_ON or name.startswith(PASSED_ON_PREFIXES)
    }
    path = kept.get("PATH", os.defpath)
    if sys.prefix != sys.base_prefix:
        scripts = sysconfig.get_path("scripts")
        path = path if path.split(os.pathsep)[0] == scripts else f"{scripts}{os.pathsep}{path}"
    return {**kept, "PATH": path}


def defaults(*, share_size: int) -> dict[str, str]:
    """Return what is set unless the node or the job sets it: as torchrun, which also runs Python unbuffered."""
    one_thread = {"OMP_NUM_THREADS": "1"} if share_size > 1 else {}
    return {"PYTHONUNBUFFERED": "1", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", **one_thread}


def torchrun_environment(gang: GangBound, share: Share, rank: int, run_dir: Path) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank; a share is what torchrun calls a group.

    Every attempt is a rendezvous of its own, which rank 0 serves: TORCHELASTIC_USE_AGENT_STORE=False, or ranks would
    wait for a store that nobody serves. Restarts are the scheduler's: this attempt has none left.
    """
    of_role = [one.ranks for one in gang.shares if one.role == share.role]
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank - share.first_rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_WORLD_SIZE": str(len(share.ranks)),
        "GROUP_RANK": str(gang.shares.index(share)),
        "GROUP_WORLD_SIZE": str(len(gang.shares)),
        "ROLE_NAME": share.role or ROLE,
        "ROLE_RANK": str(rank - min(ranks.start for ranks in of_role)),
        "ROLE_WORLD_SIZE": str(sum(len(ranks) for ranks in of_role)),
        "MASTER_ADDR": gang.master_address,
        "MASTER_PORT": str(gang.master_port),
        "TORCHELASTIC_RESTART_COUNT": str(gang.attempt - 1),
        "TORCHELASTIC_MAX_RESTARTS": str(gang.attempt - 1),
        "TORCHELASTIC_RUN_ID": gang.job_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCHELASTIC_ERROR_FILE": str(run_dir / f"rank-{rank}.error.json"),
    }


def devices(share: Share, inventory: Inventory) -> dict[str, str]:
    """Return what points CUDA at the share's GPUs; slots that are no devices hide all GPUs, and so do ranks of none.

    The order is that of PCI addresses, as NVML counts; CUDA's own default is by speed.
    """
    indexes = ",".join(str(index) for index in share.gpus) if inventory.devices else ""
    return {"CUDA_VISIBLE_DEVICES": indexes, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def gangline_environment(gang: GangBound, folder: RunFolder, checkpoints: Path) -> dict[str, str]:
    """Return what the SDK and scripts read; see `gangline.schemas.launch`."""
    offers = [
        launch.ResumeOffer(step=ref.step, uri=ref.uri, manifest_sha256=ref.manifest_sha256) for ref in gang.resume
    ]
    index = {} if gang.array_index is None else {launch.ARRAY_INDEX: str(gang.array_index)}
    return {
        launch.JOB_ID: gang.job_id,
        launch.ATTEMPT: str(gang.attempt),
        launch.CHECKPOINT_DIR: str(checkpoints),
        launch.RESUME: launch.encode_resume(offers),
        launch.SPOOL_DIR: str(folder.spool),
        launch.ENDING_FILE: str(folder.ending),
        **index,
    }


def checkpoint_folder(base: str | None, home: Path, job_id: str, attempt: int) -> Path:
    """Return the folder of an attempt's checkpoints. Raises LaunchRefused for a base that no rank could write."""
    try:
        if base is None:
            root = home.absolute() / "checkpoints"
        else:
            root = Path(base) if base.startswith("/") else launch.folder_of_uri(base)
    except UsageError as error:
        raise LaunchRefused(f"checkpoints = {base!r}: {error}", retryable=False, blame="job") from error
    return root / job_id / f"attempt-{attempt}"


def check_port(port: int, node_id: str) -> None:
    """Raise LaunchRefused if another process listens on the rendezvous port of rank 0, which is to listen there."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            # As rank 0 will: connections of an earlier attempt in TIME_WAIT do not count, a listener does.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("", port))
    except OSError as error:
        if error.errno not in {errno.EADDRINUSE, errno.EACCES}:
            raise
        what = "is in use by another process" if error.errno == errno.EADDRINUSE else "may not be used by the agent"
        raise LaunchRefused(
            f"MASTER_PORT {port} {what} on node {node_id}: end what listens there (`ss -ltnp 'sport = :{port}'` names "
            "it), or move port_first/port_count of the policy; the next attempt takes another port",
            retryable=True,
            blame="neither",
        ) from error


def unpack_code(binding: Binding, folder: RunFolder) -> None:
    """Put the job's code, verified, into the working directory; it stays empty for a job without code."""
    code = binding.gang.code
    if code is None:
        folder.work.mkdir()
        return
    try:
        data = objects.get(code.uri, code.sha256, limit_bytes=bundle.MAX_BUNDLE_BYTES)
        bundle.unpack(data, folder.work)
    except GanglineError as error:
        raise LaunchRefused(f"the job's code is not usable: {error}", retryable=True, blame="neither") from error


def find_program(command: str, work: Path, path: str, node_id: str) -> Path:
    """Return the file that a command names: relative to the code if it has a slash, else on the PATH.

    Raises LaunchRefused, not retryable.
    """
    if "/" in command:
        program = work / command
        if not program.is_file():
            what = "is a folder" if program.is_dir() else "does not exist"
            raise LaunchRefused(
                f"the command {command!r} {what} on node {node_id}: looked for {program}; the command starts "
                "in the folder of the job's code, so name it relative to that, or by its absolute path",
                retryable=False,
                blame="job",
            )
        if not os.access(program, os.X_OK):
            raise LaunchRefused(
                f"the command {command!r} is not executable on node {node_id} ({program}): chmod +x it, or name its "
                f"interpreter, as in `python {command}`",
                retryable=False,
                blame="job",
            )
        return program
    absolute = os.pathsep.join(part for part in path.split(os.pathsep) if part.startswith("/"))
    found = shutil.which(command, path=absolute)
    if found is None:
        beside = f"; for the file in the job's code write ./{command}" if (work / command).exists() else ""
        folders = absolute.split(os.pathsep)
        searched = os.pathsep.join(folders[:_NAMED_FOLDERS])
        searched += f" and {len(folders) - _NAMED_FOLDERS} more" if len(folders) > _NAMED_FOLDERS else ""
        raise LaunchRefused(
            f"the command {command!r} does not exist on node {node_id}: looked in PATH={searched}; install it there, "
            f"set PATH in the job's env, or give its path{beside}",
            retryable=False,
            blame="job",
        )
    return Path(found)
