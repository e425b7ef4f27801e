"""The producer's tier: counts acknowledged messages, by topic and window.

Counting is on the producer's hot path: it only stores into a mapped file (`journal` documents the format and the effect
of a crash). `tick` publishes: every few seconds it seals and publishes the new counts, with the same id until they are
known to be stored. The journals of dead processes of the same application in the directory are published too, with
their messages in flight as uncertain.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import deque
from functools import partial
from pathlib import Path
from typing import Final

from skylog.audit.counts import Publish, check_window
from skylog.audit.journal import (
    ACKNOWLEDGED,
    FAILED,
    MAX_APPLICATION_BYTES,
    SENT,
    SIZE_BYTES,
    SLOT_BYTES,
    SUFFIX,
    UNCERTAIN,
    Journal,
    JournalError,
    Slot,
)
from skylog.audit.report import AUDIT_TOPIC, DEFAULT_WINDOW_MS, Report, Tier
from skylog.clock import Clock, SystemClock
from skylog.errors import ConfigError

logger = logging.getLogger(__name__)

DEFAULT_INTERVAL_S: Final = 5.0
ADOPTION_INTERVAL_S: Final = 60.0
REST_S: Final = 10.0  # before a slot is reused; far longer than a thread takes from finding a slot to counting in it
DIRECTORY_VARIABLE: Final = "SKYLOG_AUDIT_DIR"


class ProducerAudit:
    """Counts the messages that producers of `application` have stored.

        producer = Producer(audit=ProducerAudit("shop"))

    application: the name of the counts. window_ms: the length of a time window; must be the same in all tiers.
    interval_s: how often counts are published. journal_dir: the directory in which counts survive a crash of the
    process; by default $SKYLOG_AUDIT_DIR, or skylog/audit under $XDG_STATE_HOME or ~/.local/state. The next producer of
    the same application with the same directory publishes leftover counts, so an application that writes to two
    clusters needs a directory for each. If the directory is not writable, counts are kept in memory, with a warning.
    """

    def __init__(
        self,
        application: str,
        *,
        window_ms: int = DEFAULT_WINDOW_MS,
        interval_s: float = DEFAULT_INTERVAL_S,
        journal_dir: Path | str | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not 0 < len(application.encode()) <= MAX_APPLICATION_BYTES:
            raise ConfigError(f"an audited application needs a name of 1 to {MAX_APPLICATION_BYTES} bytes")
        self.application = application
        self.window_ms = check_window(window_ms)
        self.interval_s = interval_s
        self.journal_dir = Path(journal_dir) if journal_dir else default_journal_dir()
        self.clock = clock or SystemClock()
        self._rejected: set[Path] = set()

    def open_producer(self, publish: Publish) -> ProducedTier:
        return ProducedTier(self, publish)

    def orphans(self) -> list[Journal]:
        """Take over the journals of dead processes."""
        found = []
        for path in sorted(self.journal_dir.glob(f"*{SUFFIX}")):
            try:
                journal = Journal.adopt(path, self.application)
            except FileNotFoundError:
                continue  # another process was faster
            except (OSError, JournalError) as error:
                if path not in self._rejected:
                    self._rejected.add(path)
                    logger.warning("%s is ignored: %s", path, error)
                continue
            if journal is not None:
                found.append(journal)
        return found


def default_journal_dir() -> Path:
    chosen = os.environ.get(DIRECTORY_VARIABLE)
    if chosen:
        return Path(chosen)
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "skylog" / "audit"


class ProducedTier:
    """The counts of one producer. `skylog.client.tier.ProducerTier` documents the callers and threads of each method.

    A slot is found by topic and window. The last one is cached, as one object, so that no thread sees a partial change.
    A slot whose window is over and published rests for a while before it is reused for another window: a thread may
    have found it and not counted yet.
    """

    def __init__(self, audit: ProducerAudit, publish: Publish) -> None:
        self._audit = audit
        self._window_ms = audit.window_ms
        self._journal = Journal.create(audit.journal_dir, audit.application, audit.window_ms)
        self._publications = Publications(publish, audit.clock)
        self._slots: dict[tuple[str, int], Slot] = {}
        self._resting: deque[tuple[float, Slot]] = deque()
        self._changing = threading.Lock()  # protects `_slots` and the two cached slots
        self._no_slot = Slot("", memoryview(bytearray(SLOT_BYTES)))
        self._sending = self._settling = self._no_slot
        self._due = self._adoption_due = audit.clock.monotonic()
        self._due += audit.interval_s

    # -- counting

    def sent(self, topic: str, sent_ms: int) -> None:
        slot = self._sending
        if topic is not slot.topic or not slot.start_ms <= sent_ms < slot.end_ms:
            slot = self._find(topic, sent_ms, is_sending=True)
        slot.cells[SENT] += 1

    def acknowledged(self, topic: str, sent_ms: int, stored_ms: int, size_bytes: int) -> None:
        slot = self._settling
        if topic is not slot.topic or not slot.start_ms <= sent_ms < slot.end_ms:
            slot = self._find(topic, sent_ms)
        if stored_ms != sent_ms and not slot.start_ms <= stored_ms < slot.end_ms and stored_ms >= 0:
            slot = self._move(slot, topic, stored_ms)
        cells = slot.cells
        cells[ACKNOWLEDGED] += 1
        cells[SIZE_BYTES] += size_bytes

    def failed(self, topic: str, sent_ms: int, *, may_be_stored: bool) -> None:
        self._find(topic, sent_ms).cells[UNCERTAIN if may_be_stored else FAILED] += 1

    def _find(self, topic: str, time_ms: int, *, is_sending: bool = False) -> Slot:
        window = time_ms // self._window_ms
        with self._changing:
            slot = self._slots.get((topic, window))
            if slot is None:
                slot = self._rested() or self._journal.take()
                slot.assign(topic, window * self._window_ms, (window + 1) * self._window_ms)
                self._slots[topic, window] = slot
            if topic is not slot.topic:
                slot.topic = topic  # an equal string in another object: the next `is` check succeeds
            if is_sending:
                self._sending = slot
            else:
                self._settling = slot
        return slot

    def _move(self, slot: Slot, topic: str, stored_ms: int) -> Slot:
        """Count a message that is stored with another timestamp as if it had been sent with that timestamp."""
        other = self._find(topic, stored_ms)
        self._settling = slot  # the next message probably belongs to the same slot
        other.cells[SENT] += 1
        slot.cells[SENT] -= 1
        return other

    # -- publishing

    def tick(self) -> None:
        now = self._audit.clock.monotonic()
        if now >= self._adoption_due:
            self._adoption_due = now + ADOPTION_INTERVAL_S
            self._adopt()
        if now >= self._due:
            self._due = now + self._audit.interval_s
            self._publish_counts()
            self._publications.retry()

    def close(self) -> None:
        slots = [*self._slots.values(), *(slot for _, slot in self._resting)]
        self._publications.settle(self._journal, slots)
        self._publications.close()

    def _publish_counts(self) -> None:
        over_ms = self._audit.clock.now_ms() - self._window_ms
        for (topic, window), slot in list(self._slots.items()):
            if self._publications.publish(self._journal, slot):
                continue
            if slot.end_ms <= over_ms and not slot.in_flight:
                self._retire(topic, window, slot)

    def _retire(self, topic: str, window: int, slot: Slot) -> None:
        with self._changing:
            del self._slots[topic, window]
            if self._sending is slot:
                self._sending = self._no_slot
            if self._settling is slot:
                self._settling = self._no_slot
        self._resting.append((self._audit.clock.monotonic(), slot))

    def _rested(self) -> Slot | None:
        """Return a slot to reuse. A slot that was counted in after all keeps its counts, and is never reused."""
        while self._resting and self._audit.clock.monotonic() - self._resting[0][0] >= REST_S:
            _, slot = self._resting.popleft()
            if not slot.in_flight:
                return slot
        return None

    def _adopt(self) -> None:
        for journal in self._audit.orphans():
            try:
                slots = journal.slots()
            except (OSError, JournalError) as error:
                logger.warning("a journal of %s cannot be read: %s", journal.application, error)
                journal.release()
                continue
            logger.info("publishing the journal of an earlier process of %s", journal.application)
            self._publications.settle(journal, slots)


class Publications:
    """Reports in flight, one per slot at a time.

    A journal that is being settled is published completely and then deleted. Called from the thread that polls and from
    the threads that call `done`; `done` may be called before `publish` returns.
    """

    def __init__(self, publish: Publish, clock: Clock) -> None:
        self._publish = publish
        self._clock = clock
        self._lock = threading.RLock()
        self._under_way: set[Slot] = set()
        self._left: dict[Journal, set[Slot]] = {}
        self._is_closed = False

    def publish(self, journal: Journal, slot: Slot) -> bool:
        """Publish the unpublished counts of a slot; returns False if there are none."""
        with self._lock:
            if slot in self._under_way:
                return True
            if not slot.seal(settled=journal in self._left):
                return False
            self._under_way.add(slot)
            report = Report(
                tier=Tier.PRODUCED,
                source=journal.application,
                topic=slot.topic,
                counts=[slot.sealed_count],
                reported_at_ms=self._clock.now_ms(),
                id=slot.report_id,
            )
            self._publish(AUDIT_TOPIC, report.encode(), partial(self._done, journal, slot))
            return True

    def settle(self, journal: Journal, slots: list[Slot]) -> None:
        """Publish all of `journal`, then delete it. Counting in it must have ended."""
        with self._lock:
            left = self._left[journal] = set(slots)
            for slot in slots:
                if not self.publish(journal, slot):
                    left.discard(slot)
            self._remove_if_done(journal)

    def retry(self) -> None:
        """Retry the reports that could not be stored."""
        with self._lock:
            for journal, slots in list(self._left.items()):
                for slot in list(slots):
                    self.publish(journal, slot)

    def close(self) -> None:
        """End retries. Reports that fail from now on are left to other processes."""
        with self._lock:
            self._is_closed = True
            for journal in list(self._left):
                self._release_if_stuck(journal)

    def _done(self, journal: Journal, slot: Slot, is_stored: bool) -> None:
        with self._lock:
            self._under_way.discard(slot)
            if is_stored:
                slot.confirm()
            if journal not in self._left:
                return
            if not is_stored:
                self._release_if_stuck(journal)
            elif not self.publish(journal, slot):
                self._left[journal].discard(slot)
                self._remove_if_done(journal)

    def _remove_if_done(self, journal: Journal) -> None:
        if journal in self._left and not self._left[journal]:
            del self._left[journal]
            journal.remove()

    def _release_if_stuck(self, journal: Journal) -> None:
        if self._is_closed and self._under_way.isdisjoint(self._left[journal]):
            journal.release()
