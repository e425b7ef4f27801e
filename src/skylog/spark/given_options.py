"""Options as Spark gives them to a source: what is not meant for it is dropped or refused with a reason.

A view (`CREATE TEMPORARY VIEW v USING skylog OPTIONS (...)`) can be read and written, so it has options for both
directions. Spark does not pass the options of a table in its catalog to a source in Python, except when the table is
created. Such a table could never be read, so creating it is refused.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from skylog.spark.errors import OptionError

SINK_ONLY: Final = frozenset(
    {"topic", "topicpartitions", "staginglocation", "checkpointlocation", "queryname", "transactional"}
)
"""The write options that are not read options, in lower case. Here, because executors that read import little."""

_PATH: Final = "path"
_PROVIDER: Final = "provider"


def source_options(given: Mapping[str, str], other_direction: Collection[str]) -> dict[str, str]:
    """Return the options in lower case, without those for the other direction.

    Raises OptionError for a table of the catalog, and for a path, which a topic does not have.
    """
    lower = {name.lower(): value for name, value in given.items()}
    if _PROVIDER in lower:
        raise OptionError(
            "Spark does not pass the options of a table to a format written in Python: use CREATE TEMPORARY VIEW ... "
            "USING skylog OPTIONS (...), which you can read and write, instead of CREATE TABLE"
        )
    if _PATH in lower:
        raise OptionError(f"a topic has no path: remove '{lower[_PATH]}' and name the topic with an option")
    return {name: value for name, value in lower.items() if name not in other_direction}
