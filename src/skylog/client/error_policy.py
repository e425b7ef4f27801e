"""What happens to a message whose handler fails. Decisions only; the runners carry them out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from skylog.client.dead_letters import error_text
from skylog.client.errors import DeserializeError
from skylog.client.message import Message
from skylog.errors import ConfigError
from skylog.limited_logger import LimitedLogger

logger = logging.getLogger(__name__)

ALIVE_EVERY_S: Final = 1.0
"""How often a runner polls for the group while a message waits for another attempt."""

RUNS_ONCE: Final = "this runner has run already; create a new one"

_MAX_DOUBLINGS: Final = 30


class StoppedError(Exception):
    """The runner was stopped while a message waited for another attempt. The group gets the message again."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What a runner does when its handler raises an exception.

        ErrorPolicy(retries=5, dead_letter_topic="orders.dead")

    The handler is called again up to `retries` times, without a limit if that is None. The first retry waits for
    `backoff_s`, each further one twice as long, at most `max_backoff_s`. Exceptions in `permanent` are not retried: the
    same bytes would fail again.

    A message that still fails goes to `dead_letter_topic`, and the runner continues with the next message. Without such
    a topic, the runner stops with the exception, and the group gets the message again after a restart.
    """

    retries: int | None = 3
    backoff_s: float = 0.5
    max_backoff_s: float = 30.0
    dead_letter_topic: str | None = None
    permanent: tuple[type[Exception], ...] = (DeserializeError,)

    def __post_init__(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise ConfigError(f"retries={self.retries}: expected 0 or more, or None for no limit")
        if self.backoff_s < 0 or self.max_backoff_s < 0:
            raise ConfigError("backoff_s and max_backoff_s must not be negative")
        if self.dead_letter_topic == "":
            raise ConfigError("dead_letter_topic must not be empty; None stops the runner instead")

    def delay_s(self, attempt: int, error: Exception) -> float | None:
        """Return the seconds to wait after failed attempt number `attempt`, from 1; None if it was the last one."""
        if isinstance(error, self.permanent):
            return None
        if self.retries is not None and attempt > self.retries:
            return None
        return min(self.backoff_s * 2.0 ** min(attempt - 1, _MAX_DOUBLINGS), self.max_backoff_s)


class RunnerCounts:
    """The messages of one runner: `handled` without an exception, `dead` in the dead-letter topic, and how many failed
    attempts were `retried`. Failures are also logged, at most one line of a kind every few seconds, and the counts at
    the end."""

    def __init__(self) -> None:
        self.handled = 0
        self.retried = 0
        self.dead = 0
        self._lock = threading.Lock()
        self._log = LimitedLogger(logger)

    def __repr__(self) -> str:
        return f"RunnerCounts(handled={self.handled}, retried={self.retried}, dead={self.dead})"

    def add_handled(self) -> None:
        """Called when a handler has returned."""
        with self._lock:
            self.handled += 1

    def add_retry(self, message: Message[object], error: Exception, attempt: int, delay_s: float) -> None:
        """Called before each wait for another attempt."""
        with self._lock:
            self.retried += 1
        self._log.warning(
            "attempt %d at %s, offset %d, failed with %s; the next one follows in %g s",
            attempt,
            message.topic_partition,
            message.offset,
            _described(error),
            delay_s,
        )

    def add_dead(self, message: Message[object], error: Exception, attempts: int, topic: str) -> None:
        """Called when a message is stored in the dead-letter topic."""
        with self._lock:
            self.dead += 1
        self._log.warning(
            "%s, offset %d, failed %d times, the last time with %s; it is now in '%s'",
            message.topic_partition,
            message.offset,
            attempts,
            _described(error),
            topic,
            exc_info=error,
        )

    def log_end(self) -> None:
        """Called when the runner has ended. The lines on single messages may have left out some dead letters."""
        level = logging.WARNING if self.dead else logging.INFO
        logger.log(
            level, "the runner has ended; messages handled: %d, in the dead-letter topic: %d", self.handled, self.dead
        )

    def add_lost(self, message: Message[object]) -> None:
        """Called when the partition of a failing message has gone to another member, which gets the message."""
        self._log.warning(
            "%s went to another member of the group; offset %d, which failed here, is handled there",
            message.topic_partition,
            message.offset,
        )


def stopped_by(message: Message[object], error: Exception, attempts: int) -> Exception:
    """Return the error that ends a runner, with a note on the message."""
    error.add_note(f"while handling {message.topic_partition} at offset {message.offset}, attempt {attempts}")
    return error


@contextmanager
def storing(message: Message[object], error: Exception) -> Iterator[None]:
    """Add a note on the message to whatever prevents that its dead letter is stored."""
    try:
        yield
    except Exception as failure:
        failure.add_note(
            f"while storing the dead letter of {message.topic_partition} at offset {message.offset}, "
            f"which failed with {_described(error)}"
        )
        raise


def log_stop(error: Exception) -> None:
    """Log the error that ends a runner, where it happens: the application may look at the runner much later."""
    logger.error("the runner stops: %s", " ".join([_described(error), *getattr(error, "__notes__", ())]))


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {error_text(error)}"
