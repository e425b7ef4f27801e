"""The versions of PySpark that the data source supports."""

from __future__ import annotations

import re
from typing import Final

from skylog.errors import SkylogError

LOWEST_PYSPARK: Final = (4, 2)


class UnsupportedSparkError(SkylogError, ImportError):
    """The installed PySpark is too old for the data source."""


def check_pyspark(version: str | None = None) -> None:
    """Raise UnsupportedSparkError if `version`, by default the installed one, is too old.

    Called when the source is used and not when it is imported: an import that fails while Spark looks for formats
    hides the formats of all packages, and the reason.
    """
    if version is None:
        import pyspark

        version = pyspark.__version__
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < LOWEST_PYSPARK:
        lowest = ".".join(map(str, LOWEST_PYSPARK))
        raise UnsupportedSparkError(
            f"skylog requires PySpark {lowest} or later, and {version} is installed: pip install 'pyspark>={lowest}'. "
            "Earlier versions have no admission control for streams in Python"
        )
