"""Compares the tiers of one topic in every window, and finds the verdict of each window.

Messages pass from producers to brokers, and from there to each consumer group and each table that they land in. Every
tier is compared with the one before it: stored with produced, each reader with stored. If no broker reports, as on a
cluster of other brokers, readers are compared with produced. A tier that has never reported for a topic is not
expected, unless it is required. Limits of the comparison:

* Messages before the first window of a producer's report come from producers that did not count yet.
* A group that started in the middle of the log never read the messages before; it is judged from the window after its
  first.
* Messages that are uncertain to a producer may be stored or not. Both are correct.
* Messages that a group has not reached yet are late, not lost: these are all in broker reports that end after its last
  offset.

`settle` describes how messages are assigned to windows if their window is unknown. Their bytes follow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from skylog.audit.ledger import Ledger, ReaderTally, Windows, WindowTally
from skylog.audit.report import Tier
from skylog.audit.settle import Guide, Series, WindowSpan, align, settle, span_sizes
from skylog.audit.verdict import SEVERITY, Balance, Finding, Sizes, Verdict

_Columns = Mapping[tuple[Tier, str], list[int]]
"""A number per window for each tier and source. All producers are one source without a name, and so are all brokers."""

_Row = tuple[int | None, int | None, dict[str, int], dict[str, int]]
"""One window of the columns: produced, stored, consumed by group, landed by table."""


@dataclass(slots=True)
class _Account:
    """A tier that is compared with the reference.

    In each window it may have up to `missing` fewer and up to `spare` more messages than the reference. It is judged
    from the window numbered `first_judged` on. `placed` is the number of its messages in each window.
    """

    tier: Tier
    source: str
    tally: WindowTally
    series: Series
    missing: list[int]
    spare: list[int]
    first_judged: int
    placed: list[int]

    def guide(self) -> Guide:
        """Return the range of messages that the reference should have in each window to agree with this tier."""
        return [
            None if number < self.first_judged else (count - self.spare[number], count + self.missing[number])
            for number, count in enumerate(self.placed)
        ]

    def settle(self, reference: list[int]) -> None:
        guide = [
            None if number < self.first_judged else (count - self.missing[number], count + self.spare[number])
            for number, count in enumerate(reference)
        ]
        self.placed = settle(self.series, [guide])

    def finding(self, number: int, expected: int) -> Finding | None:
        if number < self.first_judged:
            return None
        fewer = expected - self.placed[number]
        too_few, too_many = fewer - self.missing[number], -fewer - self.spare[number]
        if self.tier is Tier.PRODUCED:  # it comes before the reference, so too few here means too many there
            found = (Tier.STORED, "")
            options = [(Verdict.LOST, too_many), (Verdict.DUPLICATED, too_few)]
        else:
            found = (self.tier, self.source)
            options = [(Verdict.LOST, too_few), (Verdict.DUPLICATED, too_many), (Verdict.LATE, fewer)]
        return next((Finding(*found, verdict, messages) for verdict, messages in options if messages > 0), None)


class BalanceSheet:
    """The windows of one topic with a count of any tier, numbered in order."""

    def __init__(
        self, topic: str, ledger: Ledger, readers: Mapping[tuple[Tier, str], ReaderTally], window_ms: int
    ) -> None:
        self._topic = topic
        self._window_ms = window_ms
        self._stored, self._produced = ledger.stored(), ledger.produced
        tallies = [self._stored, self._produced, *(reader.tally for reader in readers.values())]
        self._windows = sorted(
            {window for tally in tallies if tally for windows in tally.messages for window in windows}
        )
        self._numbers = {window: number for number, window in enumerate(self._windows)}
        self._first_produced = len(self._windows)
        if self._produced and self._produced.first:
            self._first_produced = bisect_left(self._windows, self._produced.first[0])
        self._accounts = [*self._producers(), *(self._reader(ledger, *each) for each in sorted(readers.items()))]
        reference = self._stored or self._produced or WindowTally(window_ms)
        series = self._series(reference)
        self._reference = self._settle(series)
        self._messages = {(each.tier, each.source): each.placed for each in self._accounts}
        self._sizes = {
            (each.tier, each.source): self._bytes(each.tally, each.series, each.placed) for each in self._accounts
        }
        if self._stored or self._produced:
            key = (Tier.STORED if self._stored else Tier.PRODUCED, "")
            self._messages[key] = self._reference
            self._sizes[key] = self._bytes(reference, series, self._reference)

    def balances(self, closed_ms: int, required: Collection[Tier] = ()) -> Iterator[Balance]:
        """Yield the balance of each window. Windows that end after `closed_ms` are open.

        A `required` tier is late in every window in which it has counted nothing.
        """
        for number, window in enumerate(self._windows):
            end_ms = (window + 1) * self._window_ms
            found = [account.finding(number, self._reference[number]) for account in self._accounts]
            findings = [each for each in found if each]
            findings += self._absent(number, set(required) - {each.tier for each in findings})
            findings.sort(key=lambda each: -SEVERITY[each.verdict])
            if not findings and all(number < account.first_judged for account in self._accounts):
                verdict = Verdict.UNJUDGED
            elif end_ms > closed_ms:
                verdict = Verdict.OPEN
            else:
                verdict = findings[0].verdict if findings else Verdict.COMPLETE
            balance = Balance(
                self._topic,
                window * self._window_ms,
                end_ms,
                *self._row(self._messages, number),
                Sizes(*self._row(self._sizes, number)),
                verdict,
                tuple(findings),
            )
            if findings or self._most(number):
                yield balance

    # -- building the sheet

    def _producers(self) -> list[_Account]:
        """Return the account of producers, if there are broker counts to compare it with."""
        if not (self._stored and self._produced):
            return []
        uncertain = self._per_window(self._produced.uncertain)
        return [self._account(Tier.PRODUCED, "", self._produced, uncertain, self._per_window({}), self._first_produced)]

    def _reader(self, ledger: Ledger, key: tuple[Tier, str], reader: ReaderTally) -> _Account:
        first = 0 if self._stored else self._first_produced
        if reader.tally.first and ledger.is_from_the_middle(reader):
            first = max(first, bisect_left(self._windows, reader.tally.first[1] + 1))
        missing = self._per_window(ledger.unread(reader).messages)
        spare = self._per_window(self._produced.uncertain if self._produced and not self._stored else {})
        return self._account(*key, reader.tally, missing, spare, first)

    def _account(
        self, tier: Tier, source: str, tally: WindowTally, missing: list[int], spare: list[int], first_judged: int
    ) -> _Account:
        series = self._series(tally)
        return _Account(tier, source, tally, series, missing, spare, first_judged, series.exact)

    def _settle(self, reference: Series) -> list[int]:
        """Assign the messages of all tiers to windows; return those of the reference."""
        if any(account.series.spans for account in self._accounts):
            aligned = align(
                [reference, *(account.series for account in self._accounts)],
                [0, *(account.first_judged for account in self._accounts)],
            )
            for account, placed in zip(self._accounts, aligned[1:], strict=True):
                account.placed = placed
        settled = settle(reference, [account.guide() for account in self._accounts])
        for account in self._accounts:
            account.settle(settled)
        return settled

    def _series(self, tally: WindowTally) -> Series:
        exact = [0] * len(self._windows)
        spans = []
        for (first, last), messages in tally.messages.items():
            if first == last:
                exact[self._numbers[first]] += messages
            else:
                spans.append(
                    WindowSpan(self._numbers[first], self._numbers[last], messages, tally.size_bytes[first, last])
                )
        return Series(exact, spans)

    def _bytes(self, tally: WindowTally, series: Series, placed: list[int]) -> list[int]:
        """Return the bytes of a tally in each window, which follow its messages."""
        sizes = span_sizes(series, placed)
        for (first, last), size_bytes in tally.size_bytes.items():
            if first == last:
                sizes[self._numbers[first]] += size_bytes
        return sizes

    def _per_window(self, messages: Mapping[Windows, int]) -> list[int]:
        """Return the most messages that each window may hold: those of the window and of all spans over it."""
        changes = [0] * (len(self._windows) + 1)
        for (first, last), count in messages.items():
            changes[bisect_left(self._windows, first)] += count
            changes[bisect_left(self._windows, last + 1)] -= count
        return list(accumulate(changes[:-1]))

    # -- reading the sheet

    def _row(self, columns: _Columns, number: int) -> _Row:
        produced, stored = columns.get((Tier.PRODUCED, "")), columns.get((Tier.STORED, ""))
        return (
            produced[number] if produced and number >= self._first_produced else None,
            stored[number] if stored else None,
            {source: column[number] for (tier, source), column in columns.items() if tier is Tier.CONSUMED},
            {source: column[number] for (tier, source), column in columns.items() if tier is Tier.LANDED},
        )

    def _absent(self, number: int, tiers: set[Tier]) -> list[Finding]:
        """Return a finding for each of `tiers` that has counted nothing in a window in which others have."""
        counted = {tier for (tier, _), column in self._messages.items() if column[number]}
        missed = self._most(number)
        return [Finding(tier, "", Verdict.LATE, missed) for tier in Tier if missed and tier in tiers - counted]

    def _most(self, number: int) -> int:
        """Return the largest count of any tier in a window."""
        return max((column[number] for column in self._messages.values()), default=0)
