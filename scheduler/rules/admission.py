"""Whether a spec holds together, and could start some day; a refusal names the value, the limit and the way out."""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.amounts import milli_shown, size_shown, time_shown
from gangline.events.policy import Policy
from gangline.events.types import WHOLE_MILLI, JobSpec
from gangline.scheduler.elastic import least
from gangline.scheduler.round import Round
from gangline.scheduler.rules.admission_options import check_options
from gangline.scheduler.rules.admission_quota import check_leaf, check_quota
from gangline.scheduler.rules.dependencies import check_after
from gangline.scheduler.rules.refusals import Refusal, listed, refuse, shown
from gangline.scheduler.state import Node

MAX_NAME_CHARACTERS = 128
MAX_RETRIES = 1_000
MAX_PRIORITY = 1_000_000
MAX_GRACE_US = 3600 * 1_000_000


def admit(round_: Round, policy: Policy, job_id: str, spec: JobSpec) -> Refusal | None:
    """Return why this could never start, or None if it may wait for its turn."""
    return (
        _check_shape(spec)
        or check_options(policy, spec)
        or check_after(round_.state, policy, job_id, spec)
        or _check_queue(round_.state.policy or policy, policy, spec)
        or check_leaf(policy, spec)
        or _check_cluster(round_, spec)
        or check_quota(round_, policy, spec)
    )


def _check_shape(spec: JobSpec) -> Refusal | None:
    if not 0 < len(spec.name) <= MAX_NAME_CHARACTERS:
        return refuse(
            "name", repr(spec.name), f"it has to have 1 to {MAX_NAME_CHARACTERS} characters", "give another one"
        )
    if not spec.command or not spec.command[0]:
        return refuse("command", "empty", "it has to name a program", "give the program and its arguments")
    if "\0" in "".join(spec.command):
        return refuse("command", "not text", "it must not have a NUL character", "remove it")
    for name, value in sorted(spec.env.items()):
        if not name or "=" in name or "\0" in name + value:
            limit = "a variable has to have a name without '=', and no NUL character"
            return refuse("env", repr(name), limit, "mend it, or leave it out")
    return _check_sizes(spec) or _check_limits(spec)


def _check_sizes(spec: JobSpec) -> Refusal | None:
    if spec.gpus < 0:
        return refuse(
            "gpus", spec.gpus, "it has to be 0 or more", "ask for 1 or more, for 0.1, or for 0 if CPUs will do"
        )
    if not spec.gpus and spec.gpu_types:
        return refuse("gpu_type", spec.gpu_types[0], "the job asks for no GPU", "ask for GPUs, or name no type")
    if not 0 < spec.gpu_milli <= WHOLE_MILLI:
        return refuse("gpus", milli_shown(spec.gpu_milli), "a share is 0.001 to 1 of a GPU", "name one of these")
    if spec.gpu_milli < WHOLE_MILLI and spec.gpus > 1:
        return refuse("gpus", spec.gpus, "only one GPU can be shared", "ask for one, or for whole GPUs")
    if spec.nodes is not None and not spec.gpus:
        return refuse(
            "nodes", spec.nodes, "a job without GPUs has one rank", "leave it out, or use roles for more ranks"
        )
    if spec.nodes is not None and (spec.nodes <= 0 or spec.gpus % spec.nodes):
        return refuse(
            "nodes",
            spec.nodes,
            f"the {spec.gpus} GPUs are spread evenly",
            "name a positive number of nodes that divides them, or none",
        )
    if spec.cpu_milli < 0:
        return refuse("cpus", milli_shown(spec.cpu_milli), "it has to be 0 or more", "ask for 0 or more")
    if spec.memory_bytes < 0:
        return refuse("memory", size_shown(spec.memory_bytes), "it has to be 0 or more", "ask for 0 or more")
    return None


def _check_limits(spec: JobSpec) -> Refusal | None:
    if spec.retries is not None and not 0 <= spec.retries <= MAX_RETRIES:
        return refuse("retries", spec.retries, f"it has to be 0 to {MAX_RETRIES}", "name one of these, or none")
    if abs(spec.priority) > MAX_PRIORITY:
        limit = f"it has to be -{MAX_PRIORITY} to {MAX_PRIORITY}"
        return refuse("priority", spec.priority, limit, "name one of these")
    if spec.max_runtime_us is not None and spec.max_runtime_us <= 0:
        return refuse(
            "max_runtime", time_shown(spec.max_runtime_us), "it has to be more than 0", "name a time, or none"
        )
    if spec.grace_us is not None and not 0 <= spec.grace_us <= MAX_GRACE_US:
        return refuse("grace", time_shown(spec.grace_us), "it has to be 0s to 1h", "name such a time, or none")
    return None


def _check_queue(latest: Policy, policy: Policy, spec: JobSpec) -> Refusal | None:
    """Refuse a queue that there is not, or that a command of this round has removed."""
    stays = {queue.path: True for queue in latest.queues}
    paths = sorted(queue.path for queue in policy.queues if queue.path in stays)
    if spec.queue in paths:
        return None
    return refuse("queue", repr(spec.queue), f"the queues are {listed(paths)}", "name one of these")


def _check_cluster(round_: Round, spec: JobSpec) -> Refusal | None:
    """Refuse what no placement could ever give; while no node has registered yet, nobody can say."""
    types = round_.views.nodes.fleet.types
    if not types:
        return None
    unknown = [gpu_type for gpu_type in spec.gpu_types if gpu_type not in types]
    if unknown:
        return refuse("gpu_type", repr(unknown[0]), f"the cluster has {listed(types)}", "name one of these, or none")
    if round_.could_ever_start(spec):
        return None
    allowed = [node for node in round_.fleet if not spec.gpu_types or node.gpu_type in spec.gpu_types]
    most = max(sum(len(node.gpus) for node in allowed if node.gpu_type == gpu_type) for gpu_type in types)
    least_spec = least(round_.policy, spec)
    if least_spec.gpus > most:
        which = f"of type {listed(sorted(spec.gpu_types))} " if spec.gpu_types else ""
        return refuse(
            "gpus" if least_spec is spec else "elastic.min",
            least_spec.gpus,
            f"all nodes of one type together have {most} GPUs {which}".rstrip(),
            f"ask for at most {most}",
        )
    largest = max(allowed, key=lambda node: (len(node.gpus), node.cpu_milli, node.memory_bytes))
    return (
        _check_topology(round_, spec, allowed)
        or _check_with_roles(round_, spec)
        or _too_large(spec, largest, len(allowed))
    )


def _check_topology(round_: Round, spec: JobSpec, allowed: Sequence[Node]) -> Refusal | None:
    """Refuse a topology in which the gang could never be, if it could be without."""
    if spec.topology_required == "none" or not round_.could_ever_start(replace(spec, topology_required="none")):
        return None
    within: dict[tuple[str, str], int] = {}
    for node in allowed:
        key = (node.node_id if spec.topology_required == "node" else node.pod, node.gpu_type)
        within[key] = within.get(key, 0) + len(node.gpus)
    most = max(gpus for _, gpus in sorted(within.items()))
    of = "node" if spec.topology_required == "node" else "pod"
    return refuse(
        "topology.required",
        of,
        f"no {of} holds the gang: the largest has {most} GPUs of one type, and it asks for {spec.gpus}"
        + (f" on {spec.nodes} nodes" if spec.nodes is not None and spec.nodes > 1 else ""),
        "ask for less, prefer the topology instead of requiring it, or leave it out",
    )


def _check_with_roles(round_: Round, spec: JobSpec) -> Refusal | None:
    """Refuse roles that never find room beside the GPUs' ranks, if these would by themselves."""
    if not spec.roles or not round_.could_ever_start(replace(spec, roles=())):
        return None
    asked = ", ".join(f"{role.ranks} x {shown(role.name)}" for role in spec.roles)
    limit = "the nodes hold the GPUs' ranks, and not these beside them"
    return refuse("roles", asked, limit, "ask for fewer ranks of roles, or for less CPU, memory or GPU for each")


def _too_large(spec: JobSpec, largest: Node, nodes: int) -> Refusal:
    return refuse(
        "gpus",
        milli_shown(spec.gpus * spec.gpu_milli)
        + (f" on {spec.nodes} nodes" if spec.nodes is not None else "")
        + (f" with {milli_shown(spec.cpu_milli)} CPUs" if spec.cpu_milli else "")
        + (f" with {size_shown(spec.memory_bytes)} of memory" if spec.memory_bytes else "")
        + (" a rank" if spec.cpu_milli or spec.memory_bytes else ""),
        f"{'the only node has' if nodes == 1 else f'each of the {nodes} nodes has at most'} {len(largest.gpus)} GPUs, "
        f"{milli_shown(largest.cpu_milli)} CPUs and {size_shown(largest.memory_bytes)} of memory",
        "ask for less a rank, fewer GPUs, or another number of nodes",
    )
