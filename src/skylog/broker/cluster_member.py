"""A broker's membership in a cluster: how it joins, how it leaves, and what it does when its session expires.

Joining: the broker begins a new incarnation, removes the registration of its former one, and gives up what that was
(`cluster.elections.resign`). Only then does it register. So an order to lead is always meant for this incarnation.

Leaving: the broker marks itself as stopping, and waits until the controller has moved its leaders away.

After the session has expired, the broker leads nothing until it has joined again, with a new session. The same happens
if the session expires while the broker starts.

The entry of an incarnation names the data directory that it belongs to, and the incarnation of the same process before
it. If the last one had another directory, the in-sync sets are about the logs in that one, and the broker joins as one
that has lost its data. So does one with an older copy of its directory, which does not know the last incarnation, and a
process whose session has expired, if another process was this broker meanwhile.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from skylog.broker.replicas import Replicas
from skylog.cluster import (
    BrokerImage,
    ClusterImage,
    ClusterMetadata,
    Entry,
    EntryChange,
    SessionExpiredError,
    TopicImage,
    VersionConflictError,
)
from skylog.cluster.elections import ElectionRules, resign
from skylog.cluster.metadata import BROKERS, INCARNATIONS
from skylog.cluster.renewable_session import RenewableSession
from skylog.errors import ErrorCode, KafkaError, SkylogError
from skylog.storage import LogDir

logger = logging.getLogger(__name__)

RENEW_INTERVAL_S: Final = 0.5
RESIGN_AT_ONCE: Final = 50
HAND_OVER_S: Final = 10.0
STALE_PATIENCE_S: Final = 30.0


class ClusterMember:
    """One broker of a cluster. `on_join` and `on_expiry` start and stop what works only for a member."""

    def __init__(
        self,
        node_id: int,
        directory_id: str,
        store: RenewableSession,
        metadata: ClusterMetadata,
        replicas: Replicas,
        rules: Callable[[TopicImage], ElectionRules],
        *,
        log_dir: LogDir,
        on_join: Callable[[int], None],
        on_expiry: Callable[[], Awaitable[None]],
    ) -> None:
        self._node_id = node_id
        self._directory_id = directory_id
        self._store = store
        self._metadata = metadata
        self._replicas = replicas
        self._rules = rules
        self._log_dir = log_dir
        self._on_join = on_join
        self._on_expiry = on_expiry
        self._registration: BrokerImage | None = None
        self._is_member = False
        self._has_expired = asyncio.Event()
        self._has_joined = asyncio.Event()
        self._expirations_before = 0  # the present incarnation began
        self._keeping: asyncio.Task[None] | None = None
        self.incarnation = 0
        self.expirations = 0
        store.on_expiry(lambda: self._expired("its session has expired"))
        metadata.listen(self._check_registration)

    # -- joining

    async def enter(self) -> None:
        """Begin a new incarnation and load the image. The broker leads nothing yet."""
        await self._in_any_session(self._begin_incarnation)
        await self._metadata.load()
        await self._in_any_session(lambda: self._resign(is_intact=False))
        self._log_dir.end_first_join()

    async def _in_any_session(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step of the start. If the session expires, take it again in another one."""
        while True:
            self._has_expired.clear()
            try:
                await self._unless_expired(step)
            except SessionExpiredError:
                await self._store.renew_until_open()
            else:
                return

    async def register(self, broker: BrokerImage) -> None:
        """Register the address of the broker, and take the roles that the image has for it from now on.

        Returns when the broker has joined: if its session has expired since the start, with another one.
        """
        self._registration = dataclasses.replace(broker, directory_id=self._directory_id, is_stopping=False)
        self._store.is_kept = True
        try:
            if self.expirations > self._expirations_before:
                raise SessionExpiredError("the session of this incarnation has expired")
            await self._unless_expired(self._register)
        except SessionExpiredError:
            self._has_expired.set()
        self._keeping = asyncio.create_task(self._keep())
        await self._has_joined.wait()

    async def _register(self) -> None:
        assert self._registration is not None
        self._registration = dataclasses.replace(self._registration, incarnation=self.incarnation)
        while self._is_registration_outdated():
            await self._metadata.next_image()
        await self._metadata.register(self._registration)
        if self._has_expired.is_set():
            raise SessionExpiredError("the session has expired again")
        if not self._is_registered(self._metadata.image):
            raise SessionExpiredError("the registration was removed before this broker has seen it")
        self._is_member = True
        self._has_joined.set()
        self._replicas.may_lead = True
        self._replicas.reassign_roles()
        self._on_join(self.incarnation)

    async def move(self, broker: BrokerImage) -> None:
        """Register another address. If the session has expired, that happens when the broker joins again."""
        assert self._registration is not None
        self._registration = _moved(self._registration, broker)
        known = self._metadata.image.brokers.get(self._node_id)
        if known is None:
            return
        try:
            await self._metadata.register(_moved(known, broker))
        except (SessionExpiredError, VersionConflictError) as error:
            logger.info("the new address is not registered yet: %s", error)

    def _is_registration_outdated(self) -> bool:
        """Whether the image still has the registration of the former incarnation, which belongs to another session."""
        known = self._metadata.image.brokers.get(self._node_id)
        return known is not None and known.incarnation != self.incarnation

    async def _begin_incarnation(self) -> None:
        await self._remove_stale_registration()
        path = f"{INCARNATIONS}{self._node_id}"
        last = (await self._store.load(path)).get(path)
        if not self._continues(last):
            logger.warning("the last incarnation of broker %d had other logs; joining without any", self._node_id)
            self._log_dir.mark_first_join()
        version = last.version if last is not None else 0
        value = {"directory_id": self._directory_id, "after": self.incarnation}
        self._expirations_before = self.expirations
        self._log_dir.note_incarnation(version + 1)
        try:
            await self._store.commit([EntryChange(path, value, version)])
        except VersionConflictError:
            raise self._taken("another process") from None
        self.incarnation = version + 1

    def _continues(self, last: Entry | None) -> bool:
        """Whether the logs are those of the last incarnation: of this process, or of the data directory at a start.

        An incarnation after that of this process is its own, too: the session has ended before the commit was answered.
        """
        if last is None:
            return True
        if self.incarnation:
            return self.incarnation in (last.version, last.value.get("after"))
        noted = self._log_dir.last_incarnation
        is_older = noted is not None and noted < last.version
        return last.value.get("directory_id") == self._directory_id and not is_older

    async def _remove_stale_registration(self) -> None:
        """Remove the registration of a former process. The lock of the data directory proves that it has ended.

        Another process may have been started with a copy of the directory, so a process that joins again removes only
        its own registration.
        """
        path, incarnation = f"{BROKERS}{self._node_id}", f"{INCARNATIONS}{self._node_id}"
        deadline = asyncio.get_running_loop().time() + STALE_PATIENCE_S
        is_waiting = False
        while (entry := (await self._store.load(path)).get(path)) is not None:
            last = (await self._store.load(incarnation)).get(incarnation)
            if entry.value.get("directory_id") == self._directory_id and self._continues(last):
                try:
                    await self._store.commit([EntryChange(path, None, entry.version)])
                except VersionConflictError:
                    continue
                return
            owner = f"the broker at {entry.value['host']}:{entry.value['port']}"
            if asyncio.get_running_loop().time() > deadline:
                raise self._taken(owner)
            if not is_waiting:
                logger.warning("%s has this node.id; waiting up to %g s for it to leave", owner, STALE_PATIENCE_S)
                is_waiting = True
            await asyncio.sleep(RENEW_INTERVAL_S)  # another broker with this id: wait for its session to end

    def _taken(self, owner: str) -> SkylogError:
        return SkylogError(f"node.id={self._node_id} is in use by {owner}; choose another with --set node.id=N")

    async def _resign(self, *, is_intact: bool) -> None:
        """Give up what the former incarnation was, in all partitions."""
        topics = [
            topic
            for topic in self._metadata.image.topics.values()
            if any(self._node_id in each.replicas for each in topic.partitions)
        ]
        has_lost_data = self._log_dir.is_first_join
        for start in range(0, len(topics), RESIGN_AT_ONCE):
            some = topics[start : start + RESIGN_AT_ONCE]
            await asyncio.gather(*(self._resign_topic(topic, is_intact, has_lost_data) for topic in some))

    async def _resign_topic(self, topic: TopicImage, is_intact: bool, has_lost_data: bool) -> None:
        def decide(now: TopicImage) -> TopicImage:
            rules = self._rules(now)
            partitions = tuple(
                resign(each, self._node_id, rules, has_lost_data=has_lost_data, is_intact=is_intact)
                if self._node_id in each.replicas
                else each
                for each in now.partitions
            )
            if all(new is old for new, old in zip(partitions, now.partitions, strict=True)):
                return now
            return dataclasses.replace(now, partitions=partitions)

        try:
            await self._metadata.change_topic(topic, decide)
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise  # a broker that still leads, or is in sync, without having resigned must not join
            logger.debug("topic %s was deleted meanwhile: %s", topic.name, error)

    # -- leaving

    async def hand_over(self) -> None:
        """Let the controller move the leaders away, before the broker stops. Gives up after some seconds."""
        if self._registration is None or self._has_expired.is_set():
            return
        try:
            known = self._metadata.image.brokers[self._node_id]
            async with asyncio.timeout(HAND_OVER_S):
                await self._metadata.register(dataclasses.replace(known, is_stopping=True))
                while self._leads_what_others_could():
                    await self._metadata.next_image()
        except TimeoutError:
            logger.warning("some partitions have no other leader after %g s; stopping anyway", HAND_OVER_S)
        except (KeyError, SkylogError) as error:
            logger.warning("the leaders could not be moved away: %s", error)
        self._is_member = False  # from now on it may be removed

    def _leads_what_others_could(self) -> bool:
        image = self._metadata.image
        others = {each.node_id for each in image.brokers.values() if not each.is_stopping} - {self._node_id}
        return any(
            partition.leader == self._node_id and others.intersection(partition.in_sync_replicas)
            for topic in image.topics.values()
            for partition in topic.partitions
        )

    async def stop(self) -> None:
        self._is_member = False
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.gather(self._keeping, return_exceptions=True)

    # -- the session expires

    def _check_registration(self, before: ClusterImage, now: ClusterImage) -> None:
        """Join again if the controller has removed this broker, because it refused connections."""
        if self._is_member and before.brokers is not now.brokers and not self._is_registered(now):
            self._expired("its registration was removed, perhaps by a controller that cannot connect to it")

    def _is_registered(self, image: ClusterImage) -> bool:
        known = image.brokers.get(self._node_id)
        return known is not None and known.incarnation == self.incarnation

    def _expired(self, reason: str) -> None:
        """Stop leading at once. `_keep` joins again."""
        self.expirations += 1
        self._is_member = False
        logger.warning("this broker is no longer registered: %s; joining again", reason)
        self._replicas.may_lead = False
        self._replicas.reassign_roles()
        self._has_expired.set()

    async def _keep(self) -> None:
        while True:
            await self._has_expired.wait()
            await self._on_expiry()
            while self._has_expired.is_set():
                self._has_expired.clear()
                try:
                    await self._unless_expired(self._join_again)
                except SkylogError as error:
                    logger.warning("cannot join the cluster again yet: %s", error)
                    await self._try_later()
                except Exception:
                    logger.exception("cannot join the cluster again yet")
                    await self._try_later()

    async def _try_later(self) -> None:
        self._has_expired.set()
        await asyncio.sleep(RENEW_INTERVAL_S)

    async def _unless_expired(self, step: Callable[[], Awaitable[None]]) -> None:
        """Take a step. Raises SessionExpiredError if the session expires first: a commit may never be reported then."""
        task = asyncio.ensure_future(step())
        expiring = asyncio.create_task(self._has_expired.wait())
        try:
            await asyncio.wait({task, expiring}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_running = task.cancel()
            expiring.cancel()
            await asyncio.gather(task, expiring, return_exceptions=True)
        if was_running:
            raise SessionExpiredError("the session has expired")
        task.result()

    async def _join_again(self) -> None:
        """Join with a new session. The process has lost nothing, so its replicas stay in sync.

        If another process was this broker meanwhile, they do not.
        """
        await self._store.renew()
        await self._begin_incarnation()
        await self._resign(is_intact=True)
        self._log_dir.end_first_join()
        await self._register()
        logger.info("broker %d has joined again, in incarnation %d", self._node_id, self.incarnation)


def _moved(known: BrokerImage, to: BrokerImage) -> BrokerImage:
    return dataclasses.replace(known, host=to.host, port=to.port, endpoints=to.endpoints)
