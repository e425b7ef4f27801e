"""Arrays of PostgreSQL, as it prints them, become the arrays of JSON that they are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skylog.capture.rows import encoder_of

TEXTS, INTEGERS, TIMES = 1009, 1007, 1185


def decoded(type_oid: int, text: str) -> Any:
    encode = encoder_of(type_oid)
    assert encode is not None
    return json.loads(encode(text.encode()))


@given(st.lists(st.one_of(st.none(), st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))))
def test_every_text_is_the_same_in_json(values: list[str | None]) -> None:
    quoted = ["NULL" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"' for each in values]
    assert decoded(TEXTS, "{" + ",".join(quoted) + "}") == values


@pytest.mark.parametrize(
    ("type_oid", "text", "value"),
    [
        (INTEGERS, "{}", []),
        (INTEGERS, "{{1,-2},{NULL,4}}", [[1, -2], [None, 4]]),
        (INTEGERS, "[0:1]={1,2}", [1, 2]),
        (TEXTS, '{null,a b,"NULL"}', ["null", "a b", "NULL"]),
        (TIMES, '{"2024-05-01 12:00:00+00",infinity}', ["2024-05-01T12:00:00Z", "infinity"]),
    ],
)
def test_arrays_keep_their_form(type_oid: int, text: str, value: Any) -> None:
    assert decoded(type_oid, text) == value
