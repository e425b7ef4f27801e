"""The assignors by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from skylog.groups.consumer import range_assignor, uniform_assignor
from skylog.groups.consumer.assignor import Assignor

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform_assignor.assign, "range": range_assignor.assign}
