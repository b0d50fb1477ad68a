"""Makes plans: of the Philly trace, of openb's task lists, and of the mix."""

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from msgspec.structs import replace

from gangline.events.policy import Policy, Queue
from gangline.events.types import JobSpec, Value
from gangline.simulator import mix, openb, philly, queueing
from gangline.simulator.csv_rows import BadTrace
from gangline.simulator.plan import Plan
from gangline.simulator.work import SECOND_US, VirtualNode, Work, uniform_nodes


class Cluster(Value, frozen=True, kw_only=True):
    """The nodes for a trace that brings none of its own."""

    nodes: int = 512
    node_gpus: int = 8
    pods: int = 16

    def made(self) -> Sequence[VirtualNode]:
        """Return the nodes."""
        return uniform_nodes(self.nodes, gpus=self.node_gpus, pods=self.pods)


def of_philly(path: Path, cluster: Cluster, *, divide: int, teams: bool) -> Plan:
    """Return the Philly jobs, arriving `divide` times as fast; in one queue, or by virtual cluster with guarantees.

    Raises NotFound, BadTrace.
    """
    gpus = cluster.nodes * cluster.node_gpus
    jobs = philly.jobs(path, gpus_most=gpus)
    policy, queues = queueing.by_teams(Policy(), jobs, gpus=gpus) if teams else (queueing.pooled(Policy()), None)
    return Plan(
        title=f"{path.name}: {len(jobs):,} jobs{_faster(divide)}",
        nodes=cluster.made(),
        works=_from_0(queueing.works(jobs, divide=divide, queues=queues)),
        queues=policy.queues,
        attribution=philly.ATTRIBUTION,
    )


def of_openb(path: Path, nodes: Path, *, divide: int) -> Plan:
    """Return the tasks of a pod list that say when they came and went, on the nodes of a node list.

    Raises NotFound, BadTrace.
    """
    machines = list(openb.machines(nodes))
    tasks = list(openb.timed_tasks(path, machines))
    if not tasks:
        raise BadTrace(f"{path}: no task has a creation_time and a later deletion_time, so there is nothing to run")
    tasks.sort(key=lambda task: task.created_s or 0)
    return Plan(
        title=f"{path.name}: {len(tasks):,} tasks{_faster(divide)}",
        nodes=[
            VirtualNode(
                node_id=machine.name,
                gpus=machine.gpus,
                gpu_type=machine.gpu_type or "none",
                cpu_milli=machine.cpu_milli,
                memory_bytes=machine.memory_bytes,
            )
            for machine in machines
        ],
        works=_from_0([_of_task(number, task, divide) for number, task in enumerate(tasks)]),
        queues=(Queue(path="default"),),
        attribution=openb.ATTRIBUTION,
    )


def of_mix(wanted: mix.Mix) -> Plan:
    """Return the mix."""
    return Plan(
        title=f"the mix: seed {wanted.seed}, load {wanted.load:.2f}, {_days(wanted.days)}",
        nodes=mix.nodes(),
        works=mix.works(wanted),
        queues=mix.queues(),
        failures=mix.failures(wanted),
        until_us=wanted.days * mix.DAY_US,
    )


def _faster(divide: int) -> str:
    return f", arriving {divide} times as fast" if divide > 1 else ""


def _days(days: int) -> str:
    return "1 day" if days == 1 else f"{days} days"


def first_days(plan: Plan, days: int) -> Plan:
    """Return what happens in the first days of a plan."""
    until_us = days * mix.DAY_US
    works = list(takewhile(lambda work: work.submit_us < until_us, plan.works))
    return replace(plan, title=f"{plan.title}, the first {_days(days)}", works=works, until_us=until_us)


def _of_task(number: int, task: openb.Task, divide: int) -> Work:
    ranks = max(task.gpus, 1)
    created_s, deleted_s = task.created_s or 0, task.deleted_s or 0
    spec = JobSpec(
        name=task.name,
        queue="default",
        command=("serve",),
        gpus=task.gpus,
        gpu_milli=task.gpu_milli if task.gpus else 1000,
        nodes=1 if task.gpus else None,
        gpu_types=task.gpu_types,
        cpu_milli=task.cpu_milli // ranks,
        memory_bytes=task.memory_bytes // ranks,
    )
    return Work(
        number=number,
        submit_us=created_s * SECOND_US // divide,
        spec=spec,
        work_us=(deleted_s - created_s) * SECOND_US,
        save_us=queueing.SAVE_US,
        restart_us=queueing.RESTART_US,
    )


def _from_0(works: Sequence[Work]) -> list[Work]:
    """Return the workload so that its first job comes at the beginning."""
    first_us = min((work.submit_us for work in works), default=0)
    first_us -= first_us % SECOND_US
    return [replace(work, submit_us=work.submit_us - first_us) for work in works]
