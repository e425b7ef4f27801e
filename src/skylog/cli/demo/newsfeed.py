"""A reader of the events beside the pipeline: the members' news feed, an ordinary consumer group that is audited."""

from __future__ import annotations

import time
from collections import deque
from threading import Event, Thread
from typing import Final

from skylog.audit import ConsumerAudit
from skylog.cli.demo.places import EVENTS, NEWSFEED
from skylog.client import Consumer, DeserializeError, Message

_COMMIT_EVERY_S: Final = 1.0  # not five as usual: the lag that is shown is to be the lag that there is
_SETTINGS: Final = {"session.timeout.ms": 10_000}  # for so long a run waits for the dead member of one that was aborted
_WAIT_S: Final = 0.2
_SHOWN: Final = 3


class Newsfeed:
    """Reads from `start` to `stop`. `error` is what ended it before, if anything did."""

    def __init__(self, bootstrap: str) -> None:
        self.error: Exception | None = None
        self.foreign_count = 0
        self.latest: deque[str] = deque(maxlen=_SHOWN)
        self._bootstrap = bootstrap
        self._stopping = Event()
        self._thread = Thread(target=self._run, name="newsfeed", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, patience_s: float) -> bool:
        """Commit and leave the group; whether that was done in time."""
        self._stopping.set()
        self._thread.join(patience_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            with Consumer(
                EVENTS, NEWSFEED, self._bootstrap, commit="manual", audit=ConsumerAudit(), config=_SETTINGS
            ) as consumer:
                self._read(consumer)
        except Exception as error:  # told by whoever looks after the thread
            self.error = error

    def _read(self, consumer: Consumer) -> None:
        committed_at = time.monotonic()
        is_behind = False  # of what was read
        while not self._stopping.is_set():
            messages = consumer.consume(timeout_s=_WAIT_S)
            for message in messages:
                self._take(message)
            is_behind |= bool(messages)
            if is_behind and time.monotonic() - committed_at >= _COMMIT_EVERY_S:
                consumer.commit()
                committed_at, is_behind = time.monotonic(), False
        if is_behind:
            consumer.commit()

    def _take(self, message: Message) -> None:
        try:
            event = message.json()
            about = event["attributes"]
            if event["event"] == "page.share":
                self.latest.append(f"{about['org_id']} shared {about['page']}")
        except (DeserializeError, KeyError, TypeError):
            self.foreign_count += 1  # somebody else writes to the topic, too
