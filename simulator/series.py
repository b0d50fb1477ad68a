"""Values over time, kept as means of equal bins, so that what a simulation records does not grow with its rounds."""


class Series:
    """A value that stands until it is changed. Times are those of the simulation; before 0 nothing is recorded."""

    def __init__(self, bin_us: int) -> None:
        self.value = 0
        self._bin_us = bin_us
        self._since_us = 0
        self._sums: list[int] = []
        """Value times microseconds, by bin."""

    def add(self, at_us: int, change: int) -> None:
        """Change the value from a time on, which is not before the last one."""
        self._advance(at_us)
        self.value += change

    def put(self, at_us: int, value: int) -> None:
        """Let the value be another one from a time on."""
        self.add(at_us, value - self.value)

    def spend(self, from_us: int, to_us: int, value: int) -> None:
        """Add to a stretch of time that need not be the latest one."""
        while from_us < to_us:
            number = from_us // self._bin_us
            end_us = min((number + 1) * self._bin_us, to_us)
            if number >= len(self._sums):
                self._sums.extend([0] * (number + 1 - len(self._sums)))
            self._sums[number] += value * (end_us - from_us)
            from_us = end_us

    def means(self, until_us: int) -> list[float]:
        """Return the mean of each bin up to a time; the last bin may be a part of one."""
        self._advance(until_us)
        count = -(-until_us // self._bin_us)
        sums = (self._sums + [0] * count)[:count]
        lengths = [min(self._bin_us, until_us - number * self._bin_us) for number in range(count)]
        return [one / length for one, length in zip(sums, lengths, strict=True)]

    def mean(self, until_us: int) -> float:
        """Return the mean of the whole time."""
        self._advance(until_us)
        return sum(self._sums) / until_us if until_us > 0 else 0.0

    def _advance(self, at_us: int) -> None:
        if self.value and at_us > self._since_us:
            self.spend(max(self._since_us, 0), at_us, self.value)
        self._since_us = max(at_us, self._since_us)
