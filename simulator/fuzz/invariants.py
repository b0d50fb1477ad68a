"""What holds after every round, whatever happened: one function an invariant, which yields what does not hold.

Those of `AT_DECISION` look at a decision before it is taken, with the ledger just before it; those of `AFTER_ROUND` at
the world after a round.
"""

from collections import Counter
from collections.abc import Callable, Iterator

from gangline.events.decisions import (
    Answer,
    AnswerRepeated,
    CommandExpired,
    GangBound,
    PreemptionOrdered,
    RoomHeld,
)
from gangline.events.types import WHOLE_MILLI, Decision
from gangline.scheduler.explain import explain
from gangline.scheduler.usage import used
from gangline.scheduler.views import Views
from gangline.simulator.fuzz.kept_views import differences
from gangline.simulator.fuzz.ledger import Ledger
from gangline.simulator.fuzz.scene import Scene

USAGE_TOLERANCE = 1e-6
"""The core rounds down at every step; the ledger counts in floating point."""

EXPLAINED_EVERY = 4
"""Records of control: to explain everything after every round would take a fifth of the time."""
FEWEST_WORDS = 3
"""Of a reason."""

AtDecision = Callable[[Ledger, Decision], Iterator[str]]
AfterRound = Callable[[Scene], Iterator[str]]


# --- at every decision ---


def no_device_cpu_or_memory_is_given_twice(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Bind only what no share holds that was not reported gone."""
    if not isinstance(decision, GangBound):
        return
    for share in decision.shares:
        node = ledger.nodes.get(share.node_id)
        if node is None:
            yield f"{decision.job_id} is bound to {share.node_id}, which never registered"
            continue
        others = [held.share for held in ledger.on_node(share.node_id)]
        others += [other for other in decision.shares if other.node_id == share.node_id]
        devices = {gpu.index for gpu in node.has.gpus}
        for gpu in share.gpus:
            milli = sum(other.gpu_milli for other in others if gpu in other.gpus)
            if gpu not in devices or gpu in node.broken or milli > WHOLE_MILLI:
                yield f"{decision.job_id} gets GPU {gpu} of {share.node_id}, of which {milli} are taken with it"
        cpu = sum(other.cpu_milli for other in others)
        memory = sum(other.memory_bytes for other in others)
        if (share.cpu_milli and cpu > node.has.cpu_milli) or (share.memory_bytes and memory > node.has.memory_bytes):
            yield f"{decision.job_id} gets more CPU or memory than {share.node_id} has: {cpu}m, {memory} bytes with it"


def every_gang_is_whole(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Bind every rank that the spec asks for, once, on as many nodes, pods and types as it allows."""
    if not isinstance(decision, GangBound):
        return
    job = ledger.jobs[decision.job_id]
    spec = job.spec
    if job.live is not None or job.ended is not None or decision.attempt != job.attempts + 1:
        yield f"attempt {decision.attempt} of {decision.job_id} is bound while {job.attempts} is the latest, or live"
    ranks = [rank for share in decision.shares for rank in share.ranks]
    own = [share for share in decision.shares if not share.role]
    gpus = sum(len(share.gpus) for share in own)
    asked = [spec.gpus]
    if spec.elastic is not None:
        asked = list(range(spec.elastic.min_gpus, spec.elastic.max_gpus + 1, spec.elastic.step_gpus))
    if gpus not in asked or ranks != list(range(len(ranks))) or decision.world_size != len(ranks):
        yield f"{decision.job_id} asks for {asked} GPUs and gets {gpus}, its ranks are {ranks}"
    for role in spec.roles:
        count = sum(len(share.ranks) for share in decision.shares if share.role == role.name)
        if count != role.ranks:
            yield f"role {role.name} of {decision.job_id} has {role.ranks} ranks and gets {count}"
    nodes = {share.node_id for share in own}
    has = [ledger.nodes[share.node_id].has for share in decision.shares]
    if spec.nodes is not None and len(nodes) != spec.nodes:
        yield f"{decision.job_id} asks for {spec.nodes} nodes and gets {sorted(nodes)}"
    if spec.topology_required == "node" and len({one.node_id for one in has}) > 1:
        yield f"{decision.job_id} has to stay within a node and gets {sorted(nodes)}"
    if spec.topology_required == "pod" and len({one.pod for one in has}) > 1:
        yield f"{decision.job_id} has to stay within a pod and gets {sorted({one.pod for one in has})}"
    types = {ledger.nodes[share.node_id].has.gpu_type for share in own} if gpus else set()
    if gpus and (len(types) > 1 or (spec.gpu_types and not types <= set(spec.gpu_types))):
        yield f"{decision.job_id} accepts {spec.gpu_types or 'one type'} and gets {sorted(types)}"


def nothing_starts_where_it_may_not(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """No binding is to a node that is cordoned, drained, lost or quarantined, and none is of a job that is held."""
    if not isinstance(decision, GangBound):
        return
    for share in decision.shares:
        node = ledger.nodes[share.node_id]
        for why in ("cordoned", "draining", "lost", "quarantined"):
            if getattr(node, why):
                yield f"{decision.job_id} is bound to {share.node_id}, which is {why}"
    if ledger.jobs[decision.job_id].held:
        yield f"{decision.job_id} is bound though it is held"


def ports_are_unique_on_their_node(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """No two live gangs meet at one port of one node."""
    if not isinstance(decision, GangBound):
        return
    for held in ledger.on_node(decision.shares[0].node_id):
        if held.port == decision.master_port:
            yield f"{decision.job_id} and {held.job_id} meet at port {held.port} of {held.share.node_id}"


def only_preemptible_jobs_give_way(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """Only a preemptible job that runs and was not told to stop yet is preempted, but for its own user or operator."""
    if not isinstance(decision, PreemptionOrdered):
        return
    job = ledger.jobs[decision.job_id]
    own = decision.reason in {"held", "retried", "straggler"}
    if not job.spec.preemptible and not own:
        yield f"{decision.job_id} is not preemptible and gives way ({decision.reason})"
    if job.live is None or job.live.attempt != decision.attempt or job.preempted is not None or job.stop is not None:
        yield f"attempt {decision.attempt} of {decision.job_id} gives way, but does not run, or was told to stop"
    if decision.claimant is not None and decision.claimant not in ledger.jobs:
        yield f"{decision.job_id} gives way to {decision.claimant}, which is no job"


def what_is_held_is_for_one_claimant_each(ledger: Ledger, decision: Decision) -> Iterator[str]:
    """No share is held for two claimants, nor by a binding for another than the one that it was held for."""
    if not isinstance(decision, GangBound | RoomHeld):
        return
    taken, job_id = decision.shares, decision.job_id
    for other_id, room in ledger.room.items():
        if other_id == job_id:
            continue
        for share in taken:
            for held in room.shares:
                if held.node_id != share.node_id:
                    continue
                for gpu in set(held.gpus) & set(share.gpus):
                    if held.gpu_milli + share.gpu_milli > WHOLE_MILLI:
                        yield f"GPU {gpu} of {share.node_id} is held for {other_id}, and {job_id} gets it"


# --- after every round ---


def nothing_really_runs_twice(scene: Scene) -> Iterator[str]:
    """On the machines no device is shared by more than it holds, and no job runs twice on a node."""
    if scene.machines is not None:
        yield from scene.machines.given_twice()


def the_core_counts_what_the_log_says(scene: Scene) -> Iterator[str]:
    """Count as free of a node what its shares that are not reported gone leave."""
    for node_id, node in scene.state.nodes.items():
        shares = [held.share for held in scene.ledger.on_node(node_id)]
        for gpu, free in zip(node.gpus, node.free_milli, strict=True):
            taken = sum(share.gpu_milli for share in shares if gpu in share.gpus)
            if free + taken != WHOLE_MILLI and not (free == 0 and gpu in node.broken_gpus):
                yield f"GPU {gpu} of {node_id} has {free} free for the core, and {taken} are taken"
        if node.cpu_free_milli + sum(share.cpu_milli for share in shares) != node.cpu_milli:
            yield f"{node_id} has {node.cpu_free_milli}m of {node.cpu_milli}m CPU free for the core"
        if node.memory_free_bytes + sum(share.memory_bytes for share in shares) != node.memory_bytes:
            yield f"{node_id} has {node.memory_free_bytes} of {node.memory_bytes} bytes free for the core"


def usage_adds_up(scene: Scene) -> Iterator[str]:
    """Charge every queue for what its jobs have occupied, halved every half-life."""
    charges = scene.ledger.charges
    for queue in sorted({*charges.occupied, *scene.state.usage}):
        charges.settle(queue, scene.ledger.now_us)
        expected = charges.amounts[queue]
        usage = scene.state.usage.get(queue)
        found = used(usage, scene.state.now_us) if usage is not None else 0
        if abs(found - expected) > USAGE_TOLERANCE * max(expected, 1e9):
            yield f"queue {queue} has used {found} for the core, and {expected:.0f} by the log"


def every_command_is_answered_once(scene: Scene) -> Iterator[str]:
    """Every command before the round has one answer, and no command_id two that are not repeats."""
    ledger = scene.ledger
    if scene.before.policy is not None and not scene.more:
        for index, command in ledger.commands.items():
            yield f"{type(command).__name__} at {index} is not answered"
    answered = [one for one in scene.decisions if isinstance(one, Answer)]
    for answer in answered:
        if ledger.answered[answer.control_index] > 1:
            yield f"the command at {answer.control_index} is answered {ledger.answered[answer.control_index]} times"
    for command_id in {answer.command_id for answer in answered}:
        first = [one for one in ledger.answers[command_id] if not isinstance(one, AnswerRepeated | CommandExpired)]
        if len(first) > 1:
            yield f"command {command_id.hex()} is answered {len(first)} times: {first}"


def every_job_that_waits_has_a_reason(scene: Scene) -> Iterator[str]:
    """Be able to say why a pending job waits."""
    if scene.state.tick_index % EXPLAINED_EVERY:
        return
    views = Views()
    for job_id in scene.state.pending:
        reason = explain(scene.state, job_id, views)
        if len(reason.split()) < FEWEST_WORDS:
            yield f"why {job_id} waits is explained by {reason!r}"


def the_core_knows_the_jobs_that_the_log_says(scene: Scene) -> Iterator[str]:
    """Admitted jobs are in the state until they end; those without an attempt, and only they, are pending."""
    live = {job_id: job for job_id, job in scene.ledger.jobs.items() if job.ended is None}
    if set(scene.state.jobs) != set(live):
        yield f"the core has the jobs {sorted(scene.state.jobs)}, by the log there are {sorted(live)}"
        return
    for job_id, job in live.items():
        attempt = scene.state.jobs[job_id].attempt
        found = attempt.bound.attempt if attempt is not None else None
        expected = job.live.attempt if job.live is not None else None
        if found != expected or (job_id in scene.state.pending) != (expected is None):
            yield f"attempt {found} of {job_id} is live for the core, {expected} by the log"


def views_that_are_kept_are_those_built_anew(scene: Scene) -> Iterator[str]:
    """Keep indexes by the journal just as the state gives them."""
    yield from differences(scene.views, scene.state)


def at_most_the_bound_of_an_array_runs(scene: Scene) -> Iterator[str]:
    """No more jobs of an array run at a time than it allows."""
    running = Counter(
        job_id.partition(".")[0] for job_id, job in scene.ledger.jobs.items() if "." in job_id and job.live is not None
    )
    for array_id, count in running.items():
        most = scene.ledger.jobs[f"{array_id}.0"].spec.array_parallel
        if most is not None and count > most:
            yield f"{count} jobs of {array_id} run, at most {most} may"


AT_DECISION: tuple[AtDecision, ...] = (
    no_device_cpu_or_memory_is_given_twice,
    every_gang_is_whole,
    nothing_starts_where_it_may_not,
    ports_are_unique_on_their_node,
    only_preemptible_jobs_give_way,
    what_is_held_is_for_one_claimant_each,
)
AFTER_ROUND: tuple[AfterRound, ...] = (
    nothing_really_runs_twice,
    the_core_knows_the_jobs_that_the_log_says,
    the_core_counts_what_the_log_says,
    usage_adds_up,
    every_command_is_answered_once,
    every_job_that_waits_has_a_reason,
    views_that_are_kept_are_those_built_anew,
    at_most_the_bound_of_an_array_runs,
)
