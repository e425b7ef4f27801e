"""How many connections there may be, and how fast new ones may come. Pure: the time is passed in.

As in Kafka, the broker stops accepting while it has `max.connections`, or while more come per second than
`max.connection.creation.rate`. Each listener has these two limits for itself, too: its own, or those of the broker. The
protected listener, which brokers use, has only these. An address beyond its own limits is accepted and closed: at once
if it has too many connections, after a wait if it opens them too fast (KIP-612).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from ipaddress import ip_address
from math import inf
from typing import Final

from skylog.windowed_rate import WindowedRate

UNLIMITED: Final = 0x7FFFFFFF
MAX_ADDRESSES: Final = 10_000  # whose rates are remembered before those that are quiet are forgotten


class Refusal(Enum):
    """Why a connection is closed, by the name of the limit."""

    TOO_MANY = "max.connections.per.ip"
    TOO_FAST = "connection_creation_rate"


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """What a listener may have for itself; None for as much as the whole broker."""

    total: int | None = None
    rate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a broker. `overrides` has those of single addresses, and `listeners` those of listeners."""

    total: int = UNLIMITED
    per_address: int = UNLIMITED
    overrides: Mapping[str, int] = field(default_factory=dict)
    rate: int = UNLIMITED
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    windows: int = 11
    window_s: float = 1.0

    def total_of(self, listener: str) -> int:
        own = self.listeners.get(listener, _AS_THE_BROKER).total
        return self.total if own is None else own

    def rate_of(self, listener: str) -> int:
        own = self.listeners.get(listener, _AS_THE_BROKER).rate
        return self.rate if own is None else own


_AS_THE_BROKER: Final = ListenerLimits()


class ConnectionLimits:
    """Counts the connections by address and listener.

    `connection_rate` gives the limit of an address, None without one. `refused` counts those that were closed.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_address: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._total = 0
        self._rate = self._new_rate()
        self._listener_rates: defaultdict[str, WindowedRate] = defaultdict(self._new_rate)
        self._rates: defaultdict[str, WindowedRate] = defaultdict(self._new_rate)
        self.connection_rate: Callable[[str], float | None] = _no_limit
        self.refused: Counter[Refusal] = Counter()

    def _new_rate(self) -> WindowedRate:
        return WindowedRate(self._limits.windows, self._limits.window_s)

    def reconfigure(self, limits: Limits) -> None:
        """Use other limits from now on. Connections beyond them stay."""
        self._limits = limits

    @property
    def total(self) -> int:
        return self._total

    @property
    def is_full(self) -> bool:
        return self._total >= self._limits.total

    def is_full_for(self, listener: str) -> bool:
        """Whether a listener has as many connections as it may have for itself."""
        return self._by_listener[listener] >= self._limits.total_of(listener)

    def wait_s(self, now_s: float, listener: str = "", *, is_protected: bool = False) -> float:
        """Return how long a listener accepts nothing: 0, a time, or `inf` until a connection ends."""
        if self.is_full_for(listener) or (self.is_full and not is_protected):
            return inf
        own_s = self._excess_s(self._listener_rates[listener], self._limits.rate_of(listener), now_s)
        return own_s if is_protected else max(own_s, self._excess_s(self._rate, self._limits.rate, now_s))

    def _excess_s(self, rate: WindowedRate, limit: int, now_s: float) -> float:
        return 0.0 if limit == UNLIMITED else min(rate.excess_s(max(limit, 1), now_s), self._limits.window_s)

    def admit(
        self, address: str, now_s: float, listener: str = "", *, is_protected: bool = False
    ) -> tuple[Refusal | None, float]:
        """Count a connection that was accepted. Return why it must be closed, None if it may stay, and after how long.

        Call `release` when one that may stay has ended.
        """
        if not is_protected and self._limits.rate != UNLIMITED:
            self._rate.record(1, now_s)
        if self._limits.rate_of(listener) != UNLIMITED:
            self._listener_rates[listener].record(1, now_s)
        wait_s = self._address_wait_s(address, now_s)
        if wait_s:
            self.refused[Refusal.TOO_FAST] += 1
            return Refusal.TOO_FAST, wait_s
        if self._by_address[address] >= self._limits.overrides.get(address, self._limits.per_address):
            self.refused[Refusal.TOO_MANY] += 1
            return Refusal.TOO_MANY, 0.0
        self._by_address[address] += 1
        self._by_listener[listener] += 1
        self._total += 1
        return None, 0.0

    def release(self, address: str, listener: str = "") -> None:
        self._total -= 1
        self._by_listener[listener] -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _address_wait_s(self, address: str, now_s: float) -> float:
        """Count a connection for the rate of its address; if that is too fast, return how long it must wait instead."""
        limit = self.connection_rate(address)
        if limit is None:
            return 0.0
        if len(self._rates) >= MAX_ADDRESSES:
            for quiet in [each for each, rate in self._rates.items() if rate.is_quiet(now_s)]:
                del self._rates[quiet]
        rate = self._rates[address]
        rate.record(1, now_s)
        wait_s = min(rate.excess_s(limit, now_s), self._limits.window_s)
        if wait_s:
            rate.record(-1, now_s)
        return wait_s


def parse_overrides(entries: tuple[str, ...]) -> dict[str, int]:
    """Return the limits of `address:count` entries. Raises ValueError."""
    found = {}
    for entry in entries:
        address, _, count = entry.rpartition(":")
        number = int(count)
        if number < 0:
            raise ValueError(entry)
        found[str(ip_address(address.strip("[]")))] = number
    return found


def check_overrides(entries: tuple[str, ...]) -> str | None:
    try:
        parse_overrides(entries)
    except ValueError:
        return "expected IP addresses with a count each, such as 127.0.0.1:200,[::1]:50"
    return None


def _no_limit(_: str) -> None:
    return None
