"""Sends digests by mail: a consumer group that sends each digest of a user and a day once.

Steps for a digest, and what a kill after each of them leaves:

    1  the mail is submitted, except for its end   the server discards it; the next start begins anew
    2  the ledger says `sending`                   in doubt
    3  the end of the mail, and the response       in doubt: the mail is sent, and nothing says so
    4  the ledger says `sent`                      the next start reads the digest again, and skips it
    5  the group has committed the offset          nothing

No order of the steps avoids the doubt between 2 and 4: SMTP has no transaction that spans the server and the ledger. It
is made as short as possible, one response of the server, and a choice is left: `resend` (the default) sends the mail
again with the same Message-ID, by which receivers can recognise it, so none is lost. `skip` records it as `unknown` and
goes on, so none is sent twice.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from threading import Event
from typing import Any, Final

from skylog.client import Admin, Consumer, ConsumerGroups, GroupNotFoundError, Message
from skylog.errors import ConfigError, SkylogError
from skylog.pipeline.cluster import Cluster
from skylog.pipeline.jobs.newsletters.ledger import KEEP_DAYS, Ledger, State
from skylog.pipeline.jobs.newsletters.mail import Digest, DigestError, Letterhead
from skylog.pipeline.jobs.newsletters.submission import (
    NotAcceptedError,
    SenderRefusedError,
    SmtpServer,
    Submission,
    UnknownOutcomeError,
)

logger = logging.getLogger(__name__)

GROUP: Final = "newsletters-sender"
MAX_AGE_DAYS: Final = 7
_WAIT_S: Final = 0.5
_COMMIT_EVERY_S: Final = 1.0
_PATIENCE_S: Final = 120.0  # less than max.poll.interval.ms, so that the group keeps its member
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0


class Doubt(StrEnum):
    """What to do with a digest that may have been sent."""

    RESEND = "resend"
    SKIP = "skip"


class SendError(SkylogError):
    """The server does not accept mails, at the moment or of this sender. The digest is sent at the next start."""


@dataclass(frozen=True)
class SendSettings:
    """How to send. Digests of days that ended more than `max_age_days` ago are not sent."""

    server: SmtpServer
    letterhead: Letterhead
    in_doubt: Doubt = Doubt.RESEND
    max_age_days: float = MAX_AGE_DAYS
    patience_s: float = _PATIENCE_S
    consumer: dict[str, Any] = field(default_factory=dict)

    def check(self) -> None:
        self.server.check()
        self.letterhead.check()
        if not 0 < self.max_age_days < KEEP_DAYS:
            raise ConfigError(f"the maximum age must be below {KEEP_DAYS} days: the ledger keeps entries that long")


class NewsletterSender:
    """Sends digests until `stop` is set. `counts` has the number of digests by outcome."""

    def __init__(self, ledger: Ledger, settings: SendSettings, stop: Event) -> None:
        self.counts: Counter[str] = Counter()
        self._ledger = ledger
        self._settings = settings
        self._stop = stop
        self._submission = Submission(settings.server)
        self._is_proven = False  # the server has accepted a mail since its policy last refused one

    def take(self, message: Message) -> bool:
        """Send the digest of a record, unless it was sent before. Return False if `stop` was set before that.

        Raises SendError if the server accepts nothing for a while, or refuses the sender.
        """
        try:
            digest = Digest.decode(message.value)
        except DigestError as error:
            self._count("unreadable", f"{message.topic_partition} at offset {message.offset}: {error}")
            return True
        if _age_days(digest) > self._settings.max_age_days:
            self._count("too old", digest.key)
        elif self._ledger.entry(digest).final is not None:
            self._count("done before", digest.key)
        else:
            return self._send(digest)
        return True

    def _send(self, digest: Digest) -> bool:
        deadline, pause_s = time.monotonic() + self._settings.patience_s, _FIRST_PAUSE_S
        while not self._stop.is_set():
            try:
                self._attempt(digest)
                return True
            except SenderRefusedError as error:
                raise _refused(digest, error) from error
            except NotAcceptedError as error:
                reason: SkylogError = error
                if error.is_permanent:
                    self._reject(digest, error)
                    return True
            except UnknownOutcomeError as error:
                reason = error  # the next attempt finds this one open, and decides
            if time.monotonic() + pause_s > deadline:
                raise SendError(f"{digest.key} was not sent: {reason}")
            logger.warning("%s: %s; trying again in %.0f s", digest.key, reason, pause_s)
            self._stop.wait(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        return False

    def _reject(self, digest: Digest, error: NotAcceptedError) -> None:
        """Record that a digest is never sent.

        A refusal by policy may be due to one wrong setting, with which every digest would be rejected. It is taken to
        be about the address only if the server has accepted another mail just before. Raises SendError otherwise.
        """
        if error.is_policy:
            if not self._is_proven:
                raise _refused(digest, error) from error
            self._is_proven = False
        self._ledger.record(digest, State.REJECTED, reason=str(error))
        self._count(State.REJECTED, f"{digest.key}: {error}")

    def _attempt(self, digest: Digest) -> None:
        try:
            mail = self._settings.letterhead.mail(digest)
        except DigestError as error:
            raise NotAcceptedError(str(error), is_permanent=True) from error
        self._submission.prepare(self._settings.letterhead.sender, digest.address, mail)
        attempt = self._claim(digest)
        if attempt is None:
            self._submission.close()  # without the final dot, the server discards the mail
            return
        try:
            self._submission.finish()
        except NotAcceptedError as error:
            if not error.is_permanent:
                self._ledger.record(digest, State.FAILED, attempt, str(error))
            raise
        self._ledger.record(digest, State.SENT, attempt)
        self._is_proven = True
        self._count(State.SENT)

    def _claim(self, digest: Digest) -> str | None:
        """Return the attempt that may send the digest now, or None if it must not be sent."""
        entry = self._ledger.entry(digest)
        while entry.final is None:
            if entry.open is not None and self._settings.in_doubt is Doubt.SKIP:
                self._ledger.record(digest, State.UNKNOWN, entry.open, "it may have been sent")
                break
            is_doubtful = entry.open is not None
            attempt = self._ledger.claim(digest, takes_over=entry.open)
            if attempt is not None:
                if is_doubtful:
                    self._count("in doubt", f"{digest.key} may have been sent before, and is sent again")
                return attempt
        self._count(entry.final or "", digest.key)
        return None

    def _count(self, outcome: str, about: str = "") -> None:
        self.counts[outcome] += 1
        if about:
            logger.warning("%s: %s", outcome, about)

    def close(self) -> None:
        self._submission.quit()


def send_newsletters(
    cluster: Cluster,
    topic: str,
    settings: SendSettings,
    *,
    group: str = GROUP,
    once: bool = False,
    stop: Event | None = None,
) -> Counter[str]:
    """Send the digests of `topic` until `stop` is set, or those that are there if `once`. Return counts by outcome."""
    settings.check()
    stop = stop or Event()
    if once:
        Admin(cluster.connection()).describe_topic(topic)  # before a ledger is created for a misspelled one
    config = {**cluster.library_settings, **settings.consumer}
    with (
        Ledger(cluster, topic) as ledger,
        Consumer(topic, group, cluster.bootstrap, commit="manual", config=config) as consumer,
    ):
        sender = NewsletterSender(ledger, settings, stop)
        try:
            _run(consumer, sender, stop, is_done=lambda: once and not _lag(cluster, group, topic))
        finally:
            sender.close()
        return sender.counts


def _run(consumer: Consumer, sender: NewsletterSender, stop: Event, is_done: Callable[[], bool]) -> None:
    committed_at, has_uncommitted = time.monotonic(), False
    while has_uncommitted or not stop.is_set():
        found = consumer.consume(1, _WAIT_S) if not stop.is_set() else []
        for message in found:
            if not sender.take(message):
                return  # without a commit, because that would be of this one, too
            has_uncommitted = True
        if has_uncommitted and (not found or time.monotonic() - committed_at >= _COMMIT_EVERY_S):
            consumer.commit()
            committed_at, has_uncommitted = time.monotonic(), False
        if not found and is_done():
            return


def _lag(cluster: Cluster, group: str, topic: str) -> int:
    """Return the number of offsets of the topic that the group has not committed."""
    connection = cluster.connection()
    admin = Admin(connection)
    ranges = admin.offset_ranges(admin.describe_topic(topic).topic_partitions)
    try:
        (found,) = ConsumerGroups(connection).describe_groups([group])
        committed = {part.partition: part.committed_offset or 0 for part in found.partitions}
    except GroupNotFoundError:
        committed = {}
    return sum(max(each.end_offset - max(committed.get(key, 0), each.start_offset), 0) for key, each in ranges.items())


def _refused(digest: Digest, error: SkylogError) -> SendError:
    return SendError(
        f"{digest.key} was not sent: {error}; the server would refuse every mail: check its address, the sender, TLS "
        "and the login"
    )


def _age_days(digest: Digest) -> float:
    """Return the time since the end of the digest's day."""
    end = datetime.fromisoformat(digest.day).replace(tzinfo=UTC) + timedelta(days=1)
    return (datetime.now(UTC) - end) / timedelta(days=1)
