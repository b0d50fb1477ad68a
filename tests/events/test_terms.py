"""Which records of `decisions` count: terms fence code, and of two equal rounds the first one counts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangline.events.decisions import RoundDecided, TermOpened
from gangline.events.terms import NO_TERM, Terms, admit
from gangline.events.types import Meta

META = Meta(event_id=b"e" * 16, actor="test", at_us=1)


def opens(term: int, control_index: int = -1, previous: int | None = None) -> TermOpened:
    return TermOpened(
        meta=META,
        term=term,
        previous=term - 1 if previous is None else previous,
        control_index=control_index,
        code_digest="",
        wheel=None,
        boundary_sha256=None,
        state_sha256="",
    )


def decides(term: int, tick_index: int) -> RoundDecided:
    return RoundDecided(meta=META, tick_index=tick_index, tick_event_id=b"e" * 16, term=term, more=False, decisions=())


def counted(*records: TermOpened | RoundDecided) -> list[bool]:
    """Return which of the records count, in order."""
    terms, found = NO_TERM, []
    for record in records:
        after = admit(terms, record)
        found.append(after is not None)
        terms = after or terms
    return found


CASES: dict[str, tuple[list[TermOpened | RoundDecided], list[bool]]] = {
    "a round of the open term counts": ([opens(1), decides(1, 5)], [True, True]),
    "a round before any term is void": ([decides(0, 5), decides(1, 5)], [False, False]),
    "of two equal rounds the first counts": ([opens(1), decides(1, 5), decides(1, 5)], [True, True, False]),
    "a round of an earlier tick is void": ([opens(1), decides(1, 5), decides(1, 4)], [True, True, False]),
    "a later tick may be decided over undecided ones": ([opens(1), decides(1, 5), decides(1, 9)], [True, True, True]),
    "a term opened twice is open once": ([opens(1), opens(1)], [True, False]),
    "a round of a lower term is void": ([opens(1), opens(2), decides(1, 5)], [True, True, False]),
    "a round of a term to come is void": ([opens(1), decides(2, 5), opens(2)], [True, False, True]),
    "what the old loop wrote before the new term counts": (
        [opens(1), decides(1, 5), opens(2, 5), decides(1, 9), decides(2, 9)],
        [True, True, True, False, True],
    ),
    "a term that missed a round is void": (
        [opens(1), decides(1, 5), opens(2, 4), opens(2, 5)],
        [True, True, False, True],
    ),
    "ticks up to a term's index were decided empty": (
        [opens(1), opens(2, 7), decides(2, 7), decides(2, 8)],
        [True, True, False, True],
    ),
    "a term that skips one is void": ([opens(1), opens(3), opens(3, previous=1)], [True, False, False]),
    "a term after another one than the open is void": ([opens(1), opens(2, previous=0)], [True, False]),
}


@pytest.mark.parametrize("name", CASES)
def test_admission(name: str) -> None:
    records, expected = CASES[name]
    assert counted(*records) == expected


RECORDS = st.lists(
    st.one_of(
        st.builds(opens, st.integers(0, 4), st.integers(-1, 6)),
        st.builds(decides, st.integers(0, 4), st.integers(0, 6)),
    ),
    max_size=30,
)


@given(RECORDS)
def test_what_is_decided_stays_decided_and_terms_only_grow(records: list[TermOpened | RoundDecided]) -> None:
    terms = NO_TERM
    decided: set[int] = set()
    for record in records:
        after = admit(terms, record)
        if after is None:
            continue
        assert (after.term, after.decided) >= (terms.term, terms.decided)
        assert after.decided >= terms.decided
        if isinstance(record, RoundDecided):
            assert record.tick_index not in decided, "a tick is decided twice"
            assert record.term == after.term > 0
            decided.add(record.tick_index)
        terms = after


@given(RECORDS, st.data())
def test_records_repeated_anywhere_behind_change_nothing(
    records: list[TermOpened | RoundDecided], data: st.DataObject
) -> None:
    def final(given_: list[TermOpened | RoundDecided]) -> Terms:
        terms = NO_TERM
        for record in given_:
            terms = admit(terms, record) or terms
        return terms

    if records:
        place = data.draw(st.integers(0, len(records) - 1))
        valid = counted(*records)[place]
        again = data.draw(st.integers(place + 1, len(records)))
        if valid:
            assert final([*records[:again], records[place], *records[again:]]) == final(records)
