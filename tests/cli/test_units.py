"""Sizes and times, as people write and read them."""

import pytest

from gangline.cli import units


@pytest.mark.parametrize(
    ("text", "size"), [("4GiB", 4 << 30), ("500 MB", 500_000_000), ("1.5kB", 1500), ("7B", 7), (" 1TiB ", 1 << 40)]
)
def test_sizes_are_read(text: str, size: int) -> None:
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "4", "GiB", "4 Gib", "-1GiB", "1e3B", "0.3B", "4GiB extra"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write a number|whole number"):
        units.parse_bytes(text)


@pytest.mark.parametrize(("text", "us"), [("90s", 90_000_000), ("1.5h", 5_400_000_000), ("2d", 172_800_000_000)])
def test_times_are_read(text: str, us: int) -> None:
    assert units.parse_duration_us(text) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (420_000, "0.42s"),
        (59_400_000, "59s"),
        (125_000_000, "2m 5s"),
        (3_600_000_000, "1h"),
        (273_600_000_000, "3d 4h"),
        (-5, "0.00s"),
    ],
)
def test_times_are_shown_in_two_units(us: int, text: str) -> None:
    assert units.show_duration(us) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0B"), (1536, "1.5KiB"), (4 << 30, "4GiB")])
def test_sizes_are_shown_in_the_largest_unit(size: int, text: str) -> None:
    assert units.show_bytes(size) == text


@pytest.mark.parametrize(
    ("text", "message"), [("nan", "write a number"), ("inf", "write a number"), ("0.0001", "the finest part")]
)
def test_what_is_no_number_of_thousandths_is_refused_for_what_it_is(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        units.parse_milli(text)
