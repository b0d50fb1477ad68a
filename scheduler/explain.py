"""`explain(state, job_id) -> text`: why a job waits, or what it does, and the nearest thing that would change it."""

from collections.abc import Sequence

from gangline.events.types import WHOLE_MILLI, JobSpec
from gangline.scheduler.placement import place_parts
from gangline.scheduler.shapes import shape_of
from gangline.scheduler.state import Attempt, Job, Node, State
from gangline.scheduler.turns import turn_of_job
from gangline.scheduler.views import Views


def explain(state: State, job_id: str) -> str:
    """Return one sentence or a few about a job, as of just after a round."""
    job = state.jobs.get(job_id)
    if job is not None:
        return _running(job, job.attempt) if job.attempt is not None else _pending(state, job)
    outcome = state.ended.get(job_id)
    if outcome is not None:
        return f"it has ended: {outcome}"
    return f"no job '{job_id}' is known here: it was never admitted, or it ended so long ago that the core forgot it"


def _running(job: Job, attempt: Attempt) -> str:
    nodes = ", ".join(share.node_id for share in attempt.bound.shares)
    left = [
        share.node_id for share, status in zip(attempt.bound.shares, attempt.status, strict=True) if not status.gone
    ]
    number = f"attempt {attempt.bound.attempt}"
    if attempt.stop is None:
        return f"{number} runs on {nodes}"
    why = "it was cancelled" if job.cancelled else attempt.failure or attempt.stop.reason
    return f"{number} is told to stop ({why}); its ranks are not reported gone from {', '.join(left) or 'any node'}"


def _pending(state: State, job: Job) -> str:
    if job.held:
        return f"it is held by its user: `gangline job release {job.job_id}` lets it start"
    views = Views()
    views.sync(state)
    ahead = 0
    if state.policy is not None:
        turn = turn_of_job(state, state.policy, views, job)
        others = (state.jobs[other] for other in sorted(state.pending))
        ahead = sum(turn_of_job(state, state.policy, views, other) < turn for other in others)
    waits = f"it waits, with {ahead} pending before it" if ahead else "it waits, first of all that are pending"
    return f"{waits}: {_obstacle(state, views, job.spec)}"


def _obstacle(state: State, views: Views, spec: JobSpec) -> str:
    """Return what keeps a gang from being placed."""
    fleet = [state.nodes[node_id] for node_id in state.node_order]
    if not fleet:
        return "no node has registered yet; start an agent"
    allowed = [node for node in fleet if not spec.gpu_types or node.gpu_type in spec.gpu_types]
    if not allowed:
        return f"no node has a GPU of type {' or '.join(sorted(spec.gpu_types))}"
    if place_parts(views.nodes.fit, shape_of(spec)):
        return "it fits now, and starts with the next round unless the ports of its node are used up"
    text = _shortage(allowed, spec)
    if not place_parts(views.nodes.empty, shape_of(spec)):
        return f"{text}; the nodes have changed since it was admitted, and even empty they do not hold it: cancel it"
    return text


def _shortage(allowed: Sequence[Node], spec: JobSpec) -> str:
    largest = max(len(node.gpus) for node in allowed)
    if spec.gpu_milli < WHOLE_MILLI:
        freest = max(allowed, key=lambda node: max(node.free_milli, default=0))
        free = max(freest.free_milli, default=0)
        need, have = f"{spec.gpu_milli} thousandths of one GPU", f"{freest.node_id}, the freest node, has {free} of one"
        return f"it needs {need}; {have}{_fed(freest, spec, 1, enough=free >= spec.gpu_milli)}"
    if spec.nodes is not None and spec.nodes > 1:
        each = spec.gpus // spec.nodes
        return f"it needs {spec.nodes} nodes of one type with {each} free GPUs each; {_ready(allowed, spec, each)}"
    if spec.nodes == 1 or spec.gpus <= largest:
        freest = max(allowed, key=lambda node: node.whole_free)
        have = f"{freest.node_id}, the freest node, has {freest.whole_free}"
        enough = freest.whole_free >= spec.gpus
        return f"it needs {spec.gpus} free GPUs on one node; {have}{_fed(freest, spec, spec.gpus, enough=enough)}"
    if not largest:
        return f"it needs {spec.gpus} GPUs, and no node has any"
    whole, remainder = divmod(spec.gpus, largest)
    more = f" and one more with {remainder} free GPUs" if remainder else ""
    return f"it needs {whole} wholly free nodes of {largest} GPUs of one type{more}; {_ready(allowed, spec, largest)}"


def _fed(node: Node, spec: JobSpec, ranks: int, *, enough: bool) -> str:
    """Return what a node with GPUs enough lacks."""
    if not enough:
        return ""
    cpu, memory = spec.cpu_milli * ranks, spec.memory_bytes * ranks
    return (
        f", but {node.cpu_free_milli}m CPU and {node.memory_free_bytes:,} bytes of memory free, "
        f"where the gang asks for {cpu}m and {memory:,} bytes"
    )


def _ready(allowed: Sequence[Node], spec: JobSpec, gpus: int) -> str:
    """Return of which type the most nodes have so many free GPUs, with the CPU and memory for them, and how many."""
    types = sorted({node.gpu_type for node in allowed})
    ready = [node.gpu_type for node in allowed if _holds(node, spec, gpus)]
    counts = [(ready.count(gpu_type), gpu_type) for gpu_type in types]
    # The most; of equals the first type.
    count, gpu_type = min(counts, key=lambda found: (-found[0], found[1]))
    return f"{count} of type {gpu_type} are ready for it"


def _holds(node: Node, spec: JobSpec, gpus: int) -> bool:
    """Whether a node has so many wholly free devices, and the CPU and memory of as many ranks."""
    return (
        node.whole_free >= gpus
        and (not spec.cpu_milli or node.cpu_free_milli >= spec.cpu_milli * gpus)
        and (not spec.memory_bytes or node.memory_free_bytes >= spec.memory_bytes * gpus)
    )
