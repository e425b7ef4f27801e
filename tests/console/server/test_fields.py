from __future__ import annotations

import pytest

from skylog.console.server.fields import FieldError, Fields


def test_an_empty_field_counts_as_missing() -> None:
    fields = Fields([("a", ""), ("b", " x ")])
    assert not fields.has("a")
    assert fields.text("a", "default") == "default"
    assert fields.text("b") == " x "
    with pytest.raises(FieldError, match="'a' is missing"):
        fields.text("a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("x", "whole number"), ("1.5", "whole number"), ("-1", "between 0 and 9"), ("10", "between 0 and 9")],
)
def test_an_invalid_or_out_of_range_number_is_refused(text: str, expected: str) -> None:
    with pytest.raises(FieldError, match=expected):
        Fields([("n", text)]).integer("n", low=0, high=9)


@pytest.mark.parametrize("limits", [{}, {"low": 0}, {"high": 5}])
def test_a_number_beyond_64_bits_is_refused_without_limits_as_well(limits: dict[str, int]) -> None:
    for text in ("9223372036854775808", "-9223372036854775809", "9" * 40):
        with pytest.raises(FieldError, match="64 bits"):
            Fields([("n", text)]).integer("n", **limits)
    assert Fields([("n", "9223372036854775807")]).integer("n") == (1 << 63) - 1
    assert Fields([("n", "-9223372036854775808")]).integer("n") == -(1 << 63)


def test_times_are_utc_unless_they_name_a_zone() -> None:
    fields = Fields(
        [
            ("a", "2024-05-01T12:00"),
            ("b", "2024-05-01T14:00+02:00"),
            ("c", "1714564800000"),
            ("d", "soon"),
            ("e", "0001-01-01"),
        ]
    )
    assert fields.time_ms("a") == fields.time_ms("b") == fields.time_ms("c") == 1_714_564_800_000
    assert fields.time_ms("e") == 0
    with pytest.raises(FieldError, match="must be a time"):
        fields.time_ms("d")


def test_a_choice_names_what_can_be_chosen() -> None:
    with pytest.raises(FieldError, match="one of a, b"):
        Fields([("x", "c")]).choice("x", ("a", "b"))
