"""What is free on which node, and whether a job would fit as it lies: counted beside the core."""

from collections.abc import Iterable

from gangline.events.types import WHOLE_MILLI, Share
from gangline.simulator.work import VirtualNode


class Room:
    """Free devices. Nodes that are down have none. Whether something fits is known for nodes of one size only."""

    def __init__(self, nodes: Iterable[VirtualNode]) -> None:
        self._free = {node.node_id: [WHOLE_MILLI] * node.gpus for node in nodes}
        self.node_gpus = max(len(free) for free in self._free.values())
        self._whole = {node_id: len(free) for node_id, free in self._free.items()}
        self._nodes_with = [0] * (self.node_gpus + 1)
        for whole in self._whole.values():
            self._nodes_with[whole] += 1
        self._down: dict[str, bool] = {}
        self._partly: dict[tuple[str, int], int] = {}
        """Devices that are neither whole nor full, with what is free of each."""
        self.up_milli = self.free_milli = sum(sum(free) for free in self._free.values())
        self.open_milli = self.free_milli
        """What is free on nodes that are wholly free."""

    def take(self, share: Share) -> None:
        """Let a share take its devices."""
        self._change(share, -share.gpu_milli)

    def give_back(self, share: Share) -> None:
        """Let a share leave its devices."""
        self._change(share, share.gpu_milli)

    def change(self, node_id: str, *, up: bool) -> None:
        """Let a node be gone, or back."""
        if up == (node_id not in self._down):
            return
        free, sign = self._free[node_id], 1 if up else -1
        if up:
            del self._down[node_id]
        else:
            self._down[node_id] = True
        self._nodes_with[self._whole[node_id]] += sign
        if self._whole[node_id] == len(free):
            self.open_milli += sign * WHOLE_MILLI * len(free)
        self.up_milli += sign * WHOLE_MILLI * len(free)
        self.free_milli += sign * sum(free)

    def fits(self, gpus: int, gpu_milli: int) -> bool:
        """Whether a job would fit: on one node, or on whole nodes and one more for the remainder."""
        nodes_with = self._nodes_with
        if gpu_milli < WHOLE_MILLI:
            return any(nodes_with[1:]) or any(
                free >= gpu_milli and node_id not in self._down for (node_id, _), free in self._partly.items()
            )
        whole, rest = divmod(gpus, self.node_gpus)
        if nodes_with[self.node_gpus] < whole:
            return False
        return not rest or nodes_with[self.node_gpus] > whole or any(nodes_with[rest : self.node_gpus])

    def _change(self, share: Share, milli: int) -> None:
        node_id = share.node_id
        free = self._free[node_id]
        up = node_id not in self._down
        before = self._whole[node_id]
        for gpu in share.gpus:
            left = free[gpu] = free[gpu] + milli
            if 0 < left < WHOLE_MILLI:
                self._partly[node_id, gpu] = left
            else:
                self._partly.pop((node_id, gpu), None)
        after = self._whole[node_id] = free.count(WHOLE_MILLI)
        if up:
            self._nodes_with[before] -= 1
            self._nodes_with[after] += 1
            self.free_milli += milli * len(share.gpus)
            self.open_milli += WHOLE_MILLI * len(free) * ((after == len(free)) - (before == len(free)))
