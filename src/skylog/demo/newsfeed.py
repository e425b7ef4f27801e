"""The news feed: an ordinary, audited consumer group that reads the events beside the pipeline."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from threading import Event, Thread
from typing import Final

from skylog.audit import ConsumerAudit
from skylog.client import Consumer, DeserializeError, Message
from skylog.clock import SystemClock
from skylog.demo.layout import EVENTS, NEWSFEED
from skylog.errors import SkylogError
from skylog.outage import Outage

_COMMIT_EVERY_S: Final = 1.0  # the default of 5 s would make the displayed lag too old
_SETTINGS: Final = {"session.timeout.ms": 10_000}  # how long a run waits for the dead member of an aborted run
_WAIT_S: Final = 0.2
_SHOWN: Final = 3


class Newsfeed:
    """Consumes events in a thread from `start` to `stop`. `error` is the exception that ended it early, if any."""

    def __init__(self, bootstrap: str, patience_s: float = 0.0, login: Mapping[str, str] | None = None) -> None:
        """`patience_s` is how long its leaders and its coordinator may be away. `login` is how it connects."""
        self._settings = {**_SETTINGS, **(login or {})}
        self._outage = Outage(SystemClock(), patience_s)
        self.error: Exception | None = None
        self.foreign_count = 0
        self.latest: deque[str] = deque(maxlen=_SHOWN)
        self._bootstrap = bootstrap
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="newsfeed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Commit and leave the group. Returns whether that finished in time."""
        self._stopping.set()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Consumer(
                EVENTS, NEWSFEED, self._bootstrap, commit="manual", audit=ConsumerAudit(), config=self._settings
            ) as consumer:
                self._read(consumer)
        except Exception as error:  # the owner of the thread checks `error`
            self.error = error

    def _read(self, consumer: Consumer) -> None:
        committed_at = time.monotonic()
        has_uncommitted = False
        while has_uncommitted or not self._stopping.is_set():
            try:
                messages = consumer.consume(timeout_s=_WAIT_S)
                for message in messages:
                    self._take(message)
                has_uncommitted |= bool(messages)
                if has_uncommitted and self._is_due(committed_at):
                    consumer.commit()
                    committed_at, has_uncommitted = time.monotonic(), False
                self._outage.ended()
            except SkylogError:
                if self._outage.failed():
                    raise

    def _is_due(self, committed_at: float) -> bool:
        return self._stopping.is_set() or time.monotonic() - committed_at >= _COMMIT_EVERY_S

    def _take(self, message: Message) -> None:
        try:
            event = message.json()
            about = event["attributes"]
            if event["event"] == "page.share":
                self.latest.append(f"{about['org_id']} shared {about['page']}")
        except (DeserializeError, KeyError, TypeError):
            self.foreign_count += 1  # another producer also writes to the topic
