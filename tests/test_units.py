"""Durations and sizes as people write them."""

from __future__ import annotations

import pytest

from skylog.units import byte_count, config_value, duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3d", 259_200_000),
        ("1h30m", 5_400_000),
        ("250ms", 250),
        ("2w", 1_209_600_000),
        ("", None),
        ("3", None),
        ("x", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1GiB", 1 << 30),
        ("50MB", 50_000_000),
        ("64 KiB", 65_536),
        ("2T", 2 * 10**12),
        ("7B", 7),
        ("7", 7),
        ("1.5GB", None),
    ],
)
def test_sizes(text: str, expected: int | None) -> None:
    assert byte_count(text) == expected


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("retention.ms", "3d", "259200000"),
        ("retention.bytes", "1GiB", str(1 << 30)),
        ("retention.ms", "-1", "-1"),
        ("retention.ms", "lots", "lots"),
        ("cleanup.policy", "3d", "3d"),
    ],
)
def test_a_setting_takes_units_by_its_key(key: str, text: str, expected: str) -> None:
    assert config_value(key, text) == expected
