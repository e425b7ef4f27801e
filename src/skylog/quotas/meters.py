"""What clients have used of their quotas, and how long they must wait. Pure: the time is passed in.

Clients that share a quota share a meter. A meter that has been quiet for its whole window is forgotten.
"""

from __future__ import annotations

from math import inf
from typing import Final, NamedTuple

from skylog.quotas.config import QuotaConfig
from skylog.quotas.entities import QuotaKey
from skylog.quotas.rules import Match, QuotaRules
from skylog.windowed_rate import WindowedRate

MAX_CLIENTS: Final = 10_000  # remembered before those that are quiet are forgotten


class Meter:
    """The use of one quota: bytes, or percent of the event loop's time. Waits are at most `longest_s`.

    `throttled` counts the waits, `throttled_s` is their sum.
    """

    __slots__ = ("_rate", "limit", "longest_s", "throttled", "throttled_s")

    def __init__(self, limit: float, rate: WindowedRate, longest_s: float = inf) -> None:
        self.limit = limit
        self.longest_s = longest_s
        self._rate = rate
        self.throttled = 0
        self.throttled_s = 0.0

    def charge(self, amount: float, now_s: float) -> float:
        """Count an amount, and return how long the client must wait."""
        self._rate.record(amount, now_s)
        return self._wait_s(now_s)

    def try_charge(self, amount: float, now_s: float) -> tuple[bool, float]:
        """Count an amount unless it is too much now. Return whether it is counted, and how long to wait.

        After a quiet time everything is counted: otherwise an amount larger than the window could never pass.
        """
        was_quiet = self._rate.is_quiet(now_s)
        self._rate.record(amount, now_s)
        wait_s = self._wait_s(now_s)
        if not wait_s or was_quiet:
            return True, wait_s
        self._rate.record(-amount, now_s)
        return False, wait_s

    def give_back(self, amount: float, now_s: float) -> None:
        """Take back what was just counted."""
        self._rate.record(-amount, now_s)

    def _wait_s(self, now_s: float) -> float:
        wait_s = min(self._rate.excess_s(self.limit, now_s), self.longest_s)
        if wait_s:
            self.throttled += 1
            self.throttled_s += wait_s
        return wait_s

    def rate(self, now_s: float) -> float:
        return self._rate.rate(now_s)

    def burst(self) -> float:
        """Return the largest amount that can pass without a wait."""
        return self._rate.burst(self.limit)

    def is_quiet(self, now_s: float) -> bool:
        return self._rate.is_quiet(now_s)


class MutationMeter:
    """Partitions that a client may create and delete: a bucket of tokens, as in KIP-599.

    One change may take more tokens than there are. Then none is left until the rate has paid for it.
    """

    __slots__ = ("_filled_s", "_span_s", "_tokens", "limit", "throttled", "throttled_s")

    def __init__(self, limit: float, span_s: float, now_s: float) -> None:
        self.limit = limit
        self._span_s = span_s
        self._tokens = limit * span_s
        self._filled_s = now_s
        self.throttled = 0
        self.throttled_s = 0.0

    def take(self, count: int, now_s: float) -> float:
        """Count changes, and return how long the client must wait."""
        self.tokens(now_s)
        self._tokens -= count
        return self._wait_s()

    def try_take(self, count: int, now_s: float) -> float:
        """Count changes unless the bucket is overdrawn. Return how long to wait if it is; 0 if they are counted."""
        self.tokens(now_s)
        if self._tokens < 0:
            return self._wait_s()
        self._tokens -= count
        return 0.0

    def tokens(self, now_s: float) -> float:
        """Return the tokens left, less than 0 if the bucket is overdrawn."""
        passed_s, self._filled_s = now_s - self._filled_s, now_s
        self._tokens = min(self._tokens + passed_s * self.limit, self.limit * self._span_s)
        return self._tokens

    def _wait_s(self) -> float:
        if self._tokens >= 0:
            return 0.0
        wait_s = -self._tokens / self.limit
        self.throttled += 1
        self.throttled_s += wait_s
        return wait_s

    def is_quiet(self, now_s: float) -> bool:
        return self.tokens(now_s) >= self.limit * self._span_s


class ClientLimits(NamedTuple):
    """The meters of one client, None where it has no quota."""

    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
    mutation: MutationMeter | None


MeterKey = tuple[QuotaKey, str | None, str | None]
"""What is metered, and for which user and client id; None where these do not matter."""


class Meters:
    """The meters of all clients, by the rules of the moment."""

    def __init__(self, rules: QuotaRules, config: QuotaConfig) -> None:
        self.rules = rules
        self._config = config
        self._clients: dict[tuple[str, str], ClientLimits] = {}
        self.rates: dict[MeterKey, Meter] = {}
        self.mutations: dict[MeterKey, MutationMeter] = {}

    def change_rules(self, rules: QuotaRules) -> None:
        """Use other rules from now on. What clients have used still counts."""
        self.rules = rules
        self._clients.clear()

    def of(self, user: str, client_id: str, now_s: float) -> ClientLimits:
        """Return the meters of a client."""
        found = self._clients.get((user, client_id))
        if found is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._forget_quiet(now_s)
            found = self._clients[user, client_id] = self._find(user, client_id, now_s)
        return found

    def _find(self, user: str, client_id: str, now_s: float) -> ClientLimits:
        config, find = self._config, self.rules.find
        window_s = config.quota_window_size_seconds
        produce, fetch, request, mutation = (
            find(key, user, client_id)
            for key in (
                QuotaKey.PRODUCER_BYTE_RATE,
                QuotaKey.CONSUMER_BYTE_RATE,
                QuotaKey.REQUEST_PERCENTAGE,
                QuotaKey.CONTROLLER_MUTATION_RATE,
            )
        )
        return ClientLimits(
            self._rate(QuotaKey.PRODUCER_BYTE_RATE, produce),
            self._rate(QuotaKey.CONSUMER_BYTE_RATE, fetch),
            self._rate(QuotaKey.REQUEST_PERCENTAGE, request, longest_s=window_s),
            self._mutation(mutation, now_s),
        )

    def _rate(self, key: QuotaKey, match: Match | None, longest_s: float = inf) -> Meter | None:
        if match is None:
            return None
        meter = self.rates.get((key, match.user, match.client_id))
        if meter is None:
            rate = WindowedRate(self._config.quota_window_num, self._config.quota_window_size_seconds)
            meter = self.rates[key, match.user, match.client_id] = Meter(match.limit, rate, longest_s)
        meter.limit = match.limit
        return meter

    def _mutation(self, match: Match | None, now_s: float) -> MutationMeter | None:
        if match is None:
            return None
        key = QuotaKey.CONTROLLER_MUTATION_RATE, match.user, match.client_id
        meter = self.mutations.get(key)
        if meter is None:
            span_s = self._config.controller_quota_window_num * self._config.controller_quota_window_size_seconds
            meter = self.mutations[key] = MutationMeter(match.limit, span_s, now_s)
        meter.limit = match.limit
        return meter

    def _forget_quiet(self, now_s: float) -> None:
        """Drop the meters that say nothing any more. Clients are many if they change their ids."""
        self._clients.clear()
        self.rates = {key: meter for key, meter in self.rates.items() if not meter.is_quiet(now_s)}
        self.mutations = {key: meter for key, meter in self.mutations.items() if not meter.is_quiet(now_s)}
