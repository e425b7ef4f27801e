"""Events on their way from the requests to the producer: a bounded buffer, and the thread that fills and empties it.

A request pays for collecting its events, nothing else. Whatever takes time (JSON, the producer's own work, the wake-ups
of its threads) is done here, several times a second, for all that has come meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import SimpleQueue
from typing import Final

from skylog.events.drops import DropReason, Drops, logger
from skylog.events.envelope import Envelope, Message, Note
from skylog.events.producer import EventProducer
from skylog.events.scope import RequestScope

ROUND_S: Final = 0.1
"""From the first event to when it is handed over, along with all that has come meanwhile."""
PATIENCE_S: Final = 1.0
COLLECTED_MAX: Final = 100
"""A scope that is open for longer, or has more events, is not waited for: it should not have much to lose."""
SLICE: Final = 200
"""After so many events, which take a millisecond, the thread lets others have the interpreter for a while."""
REST_S: Final = 0.001


class Courier:
    """Takes the events of scopes to a producer, those of each scope in their order.

    `notice` is called from any thread, and from signal handlers and finalizers that interrupt anything here. So it
    takes no lock: it appends, and then looks whether somebody has rung. The thread forgets the ringing, and then looks
    what there is. Between rounds it sleeps; if there is nothing left to be done, until it rings.

    All else is done by one thread at a time, the holder of `_taking`: the courier's own, or one that drains. An event
    stays first in the buffer until the producer has it.
    """

    def __init__(self, producer: EventProducer, topic: str, envelope: Envelope, drops: Drops, buffer_max: int) -> None:
        self._producer = producer
        self._topic = topic
        self._envelope = envelope
        self._drops = drops
        self._buffer_max = buffer_max
        self._begin()

    def _begin(self) -> None:
        self.handed_over = 0
        self._taken = 0
        self._failed_seen = 0
        self._noticed: deque[RequestScope] = deque()
        self._waited_for: dict[RequestScope, float] = {}  # that are open, and since when they are known
        self._buffer: deque[Note | Message] = deque()
        self._taking = threading.RLock()
        self._is_taking = False
        self._bell: SimpleQueue[None] = SimpleQueue()
        self._is_rung = False
        self._birth = threading.Lock()  # held from the start of the thread on
        self._is_closed = False

    def __len__(self) -> int:
        """How many events wait for room in the producer's queue, or for their turn."""
        return len(self._buffer)

    def notice(self, scope: RequestScope) -> None:
        """There is something in this scope."""
        scope.is_known = True
        self._noticed.append(scope)
        if not self._is_rung:
            self._ring()

    def drain(self) -> None:
        """Hand over everything on this thread, also what is in open scopes, if the producer has room for it."""
        self._go(patience_s=0, rest_s=0)

    def close(self) -> None:
        """From now on, events are handed over by the threads that fire them."""
        self._is_closed = True
        self._bell.put(None)
        self._is_rung = False

    def fired_count(self) -> int:
        """How many events there have been in all scopes."""
        with self._taking:
            scopes = {*self._waited_for, *self._noticed.copy()}
            return self._taken + sum(len(scope.events) for scope in scopes)

    def note_undelivered(self) -> None:
        """Count what the producer has given up since the last time."""
        with self._taking:
            count = self._producer.failed_count - self._failed_seen
            self._failed_seen += count
        if count:
            self._drops.add(DropReason.UNDELIVERED, count)

    def after_fork(self) -> None:
        """In the child, where there is no thread: what there is, is the parent's."""
        for scope in (*self._waited_for, *self._noticed):
            scope.events.clear()
            scope.is_known = False
        self._begin()

    def _ring(self) -> None:
        if self._is_closed:
            self.drain()
            return
        self._is_rung = True
        self._bell.put(None)
        if self._birth.acquire(blocking=False):
            try:
                threading.Thread(target=self._run, name=f"skylog-events-{self._topic}", daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter is ending: then nobody else will do it
                self._birth.release()
                self._is_rung = False
                self.drain()

    def _run(self) -> None:
        while not self._is_closed:
            self._bell.get()
            time.sleep(ROUND_S)
            self._is_rung = False
            try:
                self._go(PATIENCE_S, REST_S)
            except Exception:  # whatever a producer does, the next events get their chance
                logger.exception("events for topic %s could not be handed over, and wait", self._topic)
            if (self._buffer or self._waited_for) and not self._is_rung:
                self._ring()

    def _go(self, patience_s: float, rest_s: float) -> None:
        """A round: what was left by the last one first, which makes room for what there is now."""
        self._hand_over_all(rest_s)
        self._take(patience_s)
        self._hand_over_all(rest_s)
        self.note_undelivered()

    def _hand_over_all(self, rest_s: float) -> None:
        while self._hand_over():
            if rest_s:
                time.sleep(rest_s)

    def _take(self, patience_s: float) -> None:
        """Move events from the scopes to the buffer. What it has no room for is dropped."""
        dropped = 0
        with self._taking:
            if self._is_taking:
                return  # in a finalizer or a signal handler, which has interrupted this or `_hand_over`
            self._is_taking = True
            now = time.monotonic()
            while self._noticed:
                self._waited_for.setdefault(self._noticed.popleft(), now)
            for scope, since in list(self._waited_for.items()):
                if not scope.is_open or now - since >= patience_s or len(scope.events) >= COLLECTED_MAX:
                    del self._waited_for[scope]
                    dropped += self._take_from(scope)
            self._is_taking = False
        if dropped:
            self._drops.add(DropReason.BUFFER_FULL, dropped)

    def _take_from(self, scope: RequestScope) -> int:
        scope.is_known = False
        count = len(scope.events)  # those that come meanwhile are behind them
        room = min(count, self._buffer_max - len(self._buffer))
        self._buffer.extend(scope.events[:room])
        del scope.events[:count]
        self._taken += count
        return count - room

    def _hand_over(self) -> bool:
        """Hand over some of the buffer's first events; whether there are more and the producer has room for them."""
        with self._taking:
            if self._is_taking:
                return False  # as above
            self._is_taking = True
            try:
                return self._hand_over_slice()
            finally:
                self._is_taking = False

    def _hand_over_slice(self) -> bool:
        buffer = self._buffer
        for _ in range(SLICE):
            if not buffer:
                return False
            message = self._sealed(buffer[0])
            if message is not None and not self._is_done_with(message):
                buffer[0] = message  # sealed once, however often it is offered
                return False
            buffer.popleft()
        return True

    def _sealed(self, event: Note | Message) -> Message | None:
        if isinstance(event, Message):
            return event
        try:
            return self._envelope.seal(event)
        except Exception as error:  # the user's created_at is no time, say
            self._drops.add(DropReason.UNENCODABLE, error=f"{event[0]}: {error!r}")
            return None

    def _is_done_with(self, message: Message) -> bool:
        """Offer it to the producer; False where it has to wait for room."""
        producer = self._producer
        try:
            if producer.offer(self._topic, *message):
                self.handed_over += 1
                return True
        except Exception as error:  # too large, say
            self._drops.add(DropReason.REFUSED, error=repr(error))
            return True
        if producer.delivered_count + producer.failed_count < self.handed_over:
            return False
        self._drops.add(DropReason.BUFFER_FULL)  # there is nothing in the producer's queue: it would wait for ever
        return True
