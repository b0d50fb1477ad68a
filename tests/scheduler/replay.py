"""Folds a history again from its records: rounds are applied, never recomputed, and name what is skipped."""

from collections.abc import Iterator, Sequence

from gangline.events import codec
from gangline.events.decisions import InputQuarantined, RoundDecided
from gangline.events.types import Decision, Event
from gangline.scheduler.evolve import evolve, evolve_round, skip
from gangline.scheduler.state import State
from tests.scheduler.world import Record


def replayed(records: Sequence[Record], state: State = State(), first: int = 0) -> Iterator[tuple[int, State]]:  # noqa: B008 - frozen
    """Yield (index, state) just after every round of the records from `first` on, starting from `state`."""
    behind = first
    for index in range(first, len(records)):
        value = records[index].round
        if value is None:
            continue
        decided = codec.decode(value)
        assert isinstance(decided, RoundDecided)
        decisions = [inner for one in decided.decisions if isinstance(inner := codec.decode(one), Decision)]
        skipped = {one.control_index for one in decisions if isinstance(one, InputQuarantined)}
        for number in range(behind, index + 1):
            if number in skipped:
                state = skip(state, number)
                continue
            event = codec.decode(records[number].value)
            assert isinstance(event, Event)
            state = evolve(state, number, event)
        state = evolve_round(state, decided, decisions)
        behind = index + 1
        yield index, state
