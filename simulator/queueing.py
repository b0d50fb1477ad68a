"""The queueing experiment: the jobs of the Philly clusters, pooled, arriving faster, on equal nodes.

At one time completions come before arrivals, arrivals before starts; ties go to the earlier row. Waiting runs from
submission, or from GPUs freed by a preemption, to the binding.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from gangline.events.policy import Policy, Queue, Quota
from gangline.events.types import JobSpec, Value
from gangline.simulator.philly import PhillyJob
from gangline.simulator.virtual_job import VirtualJob
from gangline.simulator.work import SECOND_US, Work

SAVE_US = 30 * SECOND_US
RESTART_US = 60 * SECOND_US
GANG_GPUS = 32
"""From which size on the longest wait is reported."""


def works(
    trace: Sequence[PhillyJob], *, divide: int, declared: bool = False, queues: dict[str, str] | None = None
) -> list[Work]:
    """Return the workload, sorted as it arrives. `declared` states the true duration as max_runtime.

    `queues` names the queue of each virtual cluster; without it all jobs share one.
    """
    ordered = sorted(trace, key=lambda job: job.arrival_s)
    return [
        Work(
            number=job.row,
            submit_us=job.arrival_s // divide * SECOND_US,
            spec=JobSpec(
                name=f"philly-{job.row}",
                queue=queues[job.cluster] if queues else "default",
                command=("train",),
                gpus=job.gpus,
                max_runtime_us=job.duration_us if declared else None,
            ),
            work_us=job.duration_us,
            save_us=SAVE_US,
            restart_us=RESTART_US,
        )
        for job in ordered
    ]


class Queueing(Value, frozen=True, kw_only=True):
    """What came of the experiment."""

    mean_s: float
    p99_s: float
    gang_longest_s: float
    preemptions_per_job: float
    preemptions_most: int


def summary(jobs: Sequence[VirtualJob]) -> Queueing:
    """Return the waits of jobs that have all ended."""
    waits = sorted(job.waited_us / SECOND_US for job in jobs)
    gangs = [job.waited_us / SECOND_US for job in jobs if job.work.spec.gpus >= GANG_GPUS]
    preemptions = [job.preemptions for job in jobs]
    return Queueing(
        mean_s=sum(waits) / len(waits),
        p99_s=waits[min(len(waits) * 99 // 100, len(waits) - 1)],
        gang_longest_s=max(gangs, default=0.0),
        preemptions_per_job=sum(preemptions) / len(preemptions),
        preemptions_most=max(preemptions),
    )


def pooled(policy: Policy) -> Policy:
    """Return the policy for all jobs in one queue."""
    return replace(policy, queues=(Queue(path="default"),))


def by_teams(policy: Policy, trace: Sequence[PhillyJob], *, gpus: int) -> tuple[Policy, dict[str, str]]:
    """Return the policy in which each virtual cluster is a team, and the queue of each.

    A team is guaranteed its share of the trace's GPU time, in whole GPUs, and weighs as much, or 1.
    """
    asked: dict[str, int] = {}
    for job in trace:
        asked[job.cluster] = asked.get(job.cluster, 0) + job.gpus * job.duration_us
    queues = []
    for cluster, gpu_us in sorted(asked.items()):
        guarantee = gpus * gpu_us // sum(asked.values())
        quota = Quota(guarantee_milli=guarantee * 1000, weight=max(1, guarantee))
        queues.append(Queue(path=f"team-{cluster}", quotas=(quota,)))
    return replace(policy, queues=tuple(queues)), {cluster: f"team-{cluster}" for cluster in asked}
