"""Amounts as people write them."""

import pytest

from gangline.events import amounts


@pytest.mark.parametrize(
    ("milli", "text"), [(0, "0"), (8_000, "8"), (500, "0.5"), (1, "0.001"), (1_234_567, "1234.567"), (10**9, "1000000")]
)
def test_thousandths_are_shown_without_rounding(milli: int, text: str) -> None:
    assert amounts.milli_shown(milli) == text
