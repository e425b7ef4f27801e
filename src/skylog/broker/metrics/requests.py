"""How many requests there were, of which API and version, how long they took, and which errors they got.

The one part of the metrics that stands on the data path; see `latency` for what keeps it cheap.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from time import perf_counter

from skylog.broker.metrics.latency import Latency
from skylog.net import PendingReply
from skylog.protocol.apis import ApiKey


class RequestTimes:
    """The times of one version of one API, from the moment a handler got the request."""

    __slots__ = ("at_once", "until_parked", "waited")

    def __init__(self) -> None:
        self.at_once = Latency()  # of requests that were answered, or needed no answer, when the handler returned
        self.until_parked = Latency()  # of the others, until the handler returned
        self.waited = Latency()  # of the others, until they were answered

    @property
    def count(self) -> int:
        return self.at_once.count + self.until_parked.count

    def parked(self, began: float, reply: PendingReply) -> None:
        """The handler has returned without an answer; `began` is the time of `perf_counter` at which it was called."""
        self.until_parked.record(perf_counter() - began)
        reply.on_resolve = partial(self._resolved, began)

    def _resolved(self, began: float) -> None:
        self.waited.record(perf_counter() - began)


class Requests(dict[tuple[int, int], RequestTimes]):
    """By key and version of the API."""

    def __init__(self) -> None:
        super().__init__()
        self.errors: Counter[tuple[int, str]] = Counter()  # by key of the API and name of the error

    def __missing__(self, key: tuple[int, int]) -> RequestTimes:
        times = self[key] = RequestTimes()
        return times

    def asked(self) -> dict[int, dict[int, RequestTimes]]:
        """By key and then version, those that there were requests of."""
        found: dict[int, dict[int, RequestTimes]] = {}
        for (api_key, version), times in sorted(self.items()):
            if times.count:
                found.setdefault(api_key, {})[version] = times
        return found

    def failures(self, api_key: int) -> int:
        """Errors that an API has answered, one for each partition or, where it knows no such, for each request."""
        return sum(count for (key, _), count in self.errors.items() if key == api_key)


def request_name(api_key: int) -> str:
    """Kafka's name of an API, such as OffsetCommit; the number of one that is not known."""
    try:
        return ApiKey(api_key).name.title().replace("_", "")
    except ValueError:
        return str(api_key)
