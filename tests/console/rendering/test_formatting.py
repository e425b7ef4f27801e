from __future__ import annotations

import pytest

from skylog.console.rendering import formatting


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "–"), (0, "0"), (0.01, "<0.1"), (0.25, "0.2"), (9.0, "9"), (1234567.8, "1,234,568")]
)
def test_counts(value: float | None, expected: str) -> None:
    assert formatting.count(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (123_456, "123 kB"),
        (5e9, "5.0 GB"),
        (1e18, "1000 PB"),
    ],
)
def test_sizes(value: float | None, expected: str) -> None:
    assert formatting.size(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-1, "forever"),
        (0, "0 ms"),
        (999, "999 ms"),
        (61_000, "1 min 1 s"),
        (604_800_000, "7 d"),
        (90_061_000, "1 d 1 h"),
    ],
)
def test_durations(value: int, expected: str) -> None:
    assert formatting.duration(value) == expected


def test_a_time_that_no_calendar_has_is_shown_as_a_number() -> None:
    assert formatting.utc_time(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert formatting.utc_time(2**62) == f"{2**62} ms"
    assert formatting.utc_time(-1) == "–"


@pytest.mark.parametrize(
    ("parts", "fields", "link"),
    [
        (("a",), {}, "/topics/a"),
        (("a/../b?c#d",), {}, "/topics/a%2F..%2Fb%3Fc%23d"),
        (("x.json",), {}, "/topics/x.json?format=html"),
        (("x.json", "messages"), {"partition": 0}, "/topics/x.json/messages?partition=0"),
        ((), {"name": 'a"b&c'}, "/topics?name=a%22b%26c"),
    ],
)
def test_links_hold_any_name(parts: tuple[str, ...], fields: dict[str, object], link: str) -> None:
    assert formatting.link("/topics", *parts, **fields) == link
