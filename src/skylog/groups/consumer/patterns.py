"""Subscriptions by regular expression, in RE2's syntax as in Kafka. They match whole topic names.

RE2 takes linear time for any pattern. Compiling and matching still run in a thread, because there may be many topics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from skylog.errors import ErrorCode, KafkaError

MAX_MEMORY_BYTES: Final = 1 << 20


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched at a time, in wall-clock milliseconds."""

    topics: frozenset[str]
    timestamp_ms: int


NO_MATCHES: Final = ResolvedPattern(frozenset(), 0)


def match(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """Return the names that a pattern matches. Raises INVALID_REGULAR_EXPRESSION."""
    import re2  # when the first group needs it: it takes 2.6 MB

    options = re2.Options()
    options.max_mem = MAX_MEMORY_BYTES
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
        return frozenset(name for name in names if compiled.fullmatch(name) is not None)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "unknown error"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"invalid regular expression: {reason}") from error
