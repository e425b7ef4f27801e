"""Tables that the page's script sorts, by what cells show or, if that has a unit, by their `data-value`."""

from __future__ import annotations

import re
from typing import Final

import pytest

from skylog.console.app import HERE

TABLES: Final = {
    f"{path.name}-{number}": table
    for path in sorted((HERE / "templates").glob("*.html"))
    for number, table in enumerate(re.findall(r"<table data-sortable>.*?</table>", path.read_text(), re.DOTALL))
}
CELL: Final = re.compile(r'<td((?:[^>"]|"[^"]*")*)>(.*?)</td>', re.DOTALL)
WITH_UNITS: Final = re.compile(
    r"\{\{ *(?:rate|byte_rate|size|percent|milliseconds|duration|ago|behind|left|named)\(|\}\} records"
)


def test_there_are_such_tables() -> None:
    assert len(TABLES) > 10


@pytest.mark.parametrize("name", TABLES)
def test_a_cell_with_a_unit_has_the_value_that_it_is_sorted_by(name: str) -> None:
    cells = CELL.findall(TABLES[name])
    assert [cell for attributes, cell in cells if WITH_UNITS.search(cell) and "data-value" not in attributes] == []
