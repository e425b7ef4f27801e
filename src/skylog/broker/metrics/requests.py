"""Counts requests by API and version, with their times and errors.

This is the only part of the metrics on the data path; `latency` explains how it is kept cheap.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from time import perf_counter

from skylog.broker.metrics.latency import Latency
from skylog.net import PendingReply
from skylog.protocol.apis import ApiKey


class RequestTimes:
    """The times of one version of an API, measured from the call of the handler."""

    __slots__ = ("at_once", "until_parked", "waited")

    def __init__(self) -> None:
        self.at_once = Latency()  # requests that were complete when the handler returned
        self.until_parked = Latency()  # other requests, until the handler returned
        self.waited = Latency()  # other requests, until their response

    @property
    def count(self) -> int:
        return self.at_once.count + self.until_parked.count

    def parked(self, began: float, reply: PendingReply) -> None:
        """Record that the handler returned a pending reply. `began` is the `perf_counter` time of its call."""
        self.until_parked.record(perf_counter() - began)
        reply.on_resolve = partial(self._resolved, began)

    def _resolved(self, began: float) -> None:
        self.waited.record(perf_counter() - began)


class Requests(dict[tuple[int, int], RequestTimes]):
    """Request times by key and version of the API, and counts of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: Counter[tuple[int, str]] = Counter()  # by API key and error name

    def __missing__(self, key: tuple[int, int]) -> RequestTimes:
        times = self[key] = RequestTimes()
        return times

    def by_api(self) -> dict[int, dict[int, RequestTimes]]:
        """Return the times by API key, then version, without those that had no requests."""
        found: dict[int, dict[int, RequestTimes]] = {}
        for (api_key, version), times in sorted(self.items()):
            if times.count:
                found.setdefault(api_key, {})[version] = times
        return found

    def failures(self, api_key: int) -> int:
        """Return the number of errors in an API's responses: per partition, or per request if there are none."""
        return sum(count for (key, _), count in self.errors.items() if key == api_key)


def request_name(api_key: int) -> str:
    """Return Kafka's name of an API, such as OffsetCommit, or the number of an unknown API."""
    try:
        return ApiKey(api_key).name.title().replace("_", "")
    except ValueError:
        return str(api_key)
