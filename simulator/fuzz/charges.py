"""What queues have used of late, counted in floating point from the log: what the core counts in integers."""

from gangline.events.policy import Policy


class Charges:
    """By queue: thousandths of GPUs times microseconds, halved every half-life."""

    def __init__(self) -> None:
        self.amounts: dict[str, float] = {}
        self.occupied: dict[str, int] = {}
        self._since_us: dict[str, int] = {}

    def change(self, queue: str, now_us: int, milli: int) -> None:
        """Let a queue occupy so much more from now on."""
        self.settle(queue, now_us)
        self.occupied[queue] = self.occupied.get(queue, 0) + milli

    def settle(self, queue: str, now_us: int) -> None:
        """Add up what a queue occupied until now."""
        since_us = self._since_us.get(queue, now_us)
        used = self.occupied.get(queue, 0) * (now_us - since_us)
        self.amounts[queue] = self.amounts.get(queue, 0.0) + used
        self._since_us[queue] = now_us

    def decay(self, before_us: int, now_us: int, policy: Policy) -> None:
        """Halve by the steps of the policy that a tick has crossed."""
        steps = now_us // policy.usage_step_us - before_us // policy.usage_step_us
        if steps <= 0:
            return
        for queue in self.occupied:
            self.settle(queue, now_us)
            self.amounts[queue] *= 0.5 ** (steps * policy.usage_step_us / policy.half_life_us)
