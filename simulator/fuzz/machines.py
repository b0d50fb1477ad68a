"""All nodes of a randomised world, and the detector that says which are lost."""

from collections.abc import Iterator, Mapping, Sequence

from gangline.events.control import NodeLost, NodeRecovered
from gangline.events.types import WHOLE_MILLI, Decision, Evidence
from gangline.simulator.fuzz.dice import keyed
from gangline.simulator.fuzz.mail import Mail
from gangline.simulator.fuzz.node import Node
from gangline.simulator.fuzz.plan import Conduct, Machine, Noise
from gangline.simulator.fuzz.running import Clock

DETECTED_AFTER_S = 3
"""How long a node is silent before the detector says that it is lost."""


class Machines:
    """The nodes and the detector. Times are seconds of the world."""

    def __init__(self, machines: Sequence[Machine], noise: Noise, clock: Clock, mail: Mail) -> None:
        self.noise = noise
        self.clock = clock
        self.mail = mail
        self.rounds: list[tuple[int, tuple[Decision, ...]]] = []
        self.conducts: dict[str, Conduct] = {}
        """By job, arrays by their own id."""
        self.nodes: Mapping[str, Node] = {machine.node_id: Node(machine, self) for machine in machines}
        self._heard = 0

    def conduct_of(self, job_id: str) -> Conduct:
        """Return how the attempts of a job go."""
        return self.conducts.get(job_id.partition(".")[0], Conduct())

    def lag_s(self, node_id: str, now_s: int) -> int:
        """Return how late an agent reads just now."""
        if self.mail.quiet or not self.noise.lag_most_s:
            return 0
        return keyed(self.noise.seed, node_id, now_s, "lag") % (self.noise.lag_most_s + 1)

    def step(self, now_s: int) -> None:
        """Let every node live up to now, and the detector look around."""
        for node in self.nodes.values():
            if not node.boots and now_s >= node.has.joins_s:
                node.boots_now(now_s)
            if node.boots:
                boot_id = node.boot_id
                node.step(now_s)
                self._detect(now_s, node, boot_id)

    def _detect(self, now_s: int, node: Node, boot_id: str) -> None:
        silent = node.silent_since_s is not None and now_s - node.silent_since_s >= DETECTED_AFTER_S
        if silent == node.lost:
            return
        node.lost = silent
        self._heard += 1
        kind, boot_id = (NodeLost, boot_id) if silent else (NodeRecovered, node.boot_id)
        name = f"{node.has.node_id}-{kind.__name__}-{self._heard}"
        evidence = Evidence(topic="heartbeats", partition=0, offset=self._heard, summary="")
        meta = self.clock.meta(now_s, name, "detector")
        event = kind(meta=meta, node_id=node.has.node_id, boot_id=boot_id, evidence=evidence)
        self.mail.send(now_s, name, event, in_order=True)

    def mend(self, now_s: int) -> None:
        """Bring back every node that is away."""
        for node in self.nodes.values():
            if node.silent_since_s is not None:
                node.back_s = now_s

    @property
    def is_idle(self) -> bool:
        """Whether nothing runs, and nothing is left to be told."""
        return not any(node.runs or node.unreported for node in self.nodes.values())

    def given_twice(self) -> Iterator[str]:
        """Yield every device on which more runs than it holds, and every job with two attempts on a node."""
        for node_id, node in self.nodes.items():
            used: dict[int, int] = {}
            for run in node.runs.values():
                for share in run.shares:
                    for gpu in share.gpus:
                        used[gpu] = used.get(gpu, 0) + share.gpu_milli
            for gpu, milli in used.items():
                if milli > WHOLE_MILLI:
                    yield f"on GPU {gpu} of {node_id} run {sorted(node.runs)}, which take {milli} thousandths of it"
            jobs = [job_id for job_id, _ in node.runs]
            for job_id in sorted(set(jobs)):
                if jobs.count(job_id) > 1:
                    yield f"two attempts of {job_id} run on {node_id}"
