"""What each client's admin can do with consumer groups, behind one interface."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import kafka
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException
from kafka import errors
from kafka.admin import KafkaAdminClient

from .aiokafka_peer import AiokafkaPeer
from .confluent import ConfluentPeer
from .driven import Driver
from .kafka_python import KafkaPythonPeer, refusals
from .peer import PATIENCE_S, Refused

Offsets = dict[int, tuple[int, str]]
"""Offset and metadata by partition."""


@dataclass(frozen=True)
class Description:
    state: str
    assignor: str
    members: int


class GroupAdmin(Protocol):
    def groups(self) -> set[str]: ...

    def describe(self, group: str) -> Description: ...

    def offsets(self, group: str, topic: str) -> Offsets: ...

    def delete(self, group: str) -> None: ...


class ConfluentGroups:
    def __init__(self, peer: ConfluentPeer) -> None:
        self._admin = peer.admin

    @staticmethod
    def _result(future: Any) -> Any:
        try:
            return future.result(PATIENCE_S)
        except KafkaException as failure:
            raise Refused(failure.args[0].code(), failure.args[0].str()) from failure

    def groups(self) -> set[str]:
        return {each.group_id for each in self._result(self._admin.list_consumer_groups()).valid}

    def describe(self, group: str) -> Description:
        found = self._result(self._admin.describe_consumer_groups([group])[group])
        state = found.state.name.title().replace("_", "")
        return Description(state, found.partition_assignor, len(found.members))

    def offsets(self, group: str, topic: str) -> Offsets:
        (future,) = self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
        rows = self._result(future).topic_partitions
        return {row.partition: (row.offset, row.metadata or "") for row in rows if row.topic == topic}

    def delete(self, group: str) -> None:
        self._result(self._admin.delete_consumer_groups([group])[group])


class KafkaPythonGroups:
    def __init__(self, peer: KafkaPythonPeer) -> None:
        self._admin: KafkaAdminClient = peer.admin

    def groups(self) -> set[str]:
        return {each["group_id"] for each in self._admin.list_groups()}

    def describe(self, group: str) -> Description:
        found = self._admin.describe_groups([group])[group]
        return Description(found["group_state"], found["protocol_data"], len(found["members"]))

    def offsets(self, group: str, topic: str) -> Offsets:
        found = self._admin.list_group_offsets(group)[group]
        return {each.partition: (row.offset, row.metadata) for each, row in found.items() if each.topic == topic}

    def delete(self, group: str) -> None:
        with refusals():
            outcome = self._admin.delete_groups([group])[group]
        if outcome != "OK":
            error = getattr(errors, outcome.partition(":")[0].split("]")[-1].strip())
            raise Refused(error.errno, outcome)

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        place = kafka.TopicPartition(topic, partition)
        with refusals():
            outcome = self._admin.delete_group_offsets(group, [place])[place]
        if outcome.errno:
            raise Refused(outcome.errno, str(outcome))


class AiokafkaGroups:
    """Cannot delete groups."""

    def __init__(self, peer: AiokafkaPeer) -> None:
        self._peer = peer
        self._admin: AIOKafkaAdminClient = peer.admin

    def groups(self) -> set[str]:
        return {name for name, _ in self._peer.run(self._admin.list_consumer_groups())}

    def describe(self, group: str) -> Description:
        (answer,) = self._peer.run(self._admin.describe_consumer_groups([group]))
        ((_, _, state, _, protocol, members, *_),) = answer.groups
        return Description(state, protocol, len(members))

    def offsets(self, group: str, topic: str) -> Offsets:
        found = self._peer.run(self._admin.list_consumer_group_offsets(group))
        return {each.partition: (row.offset, row.metadata) for each, row in found.items() if each.topic == topic}


class DrivenGroups:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver

    def groups(self) -> set[str]:
        return set(self._driver.ask("groups"))

    def describe(self, group: str) -> Description:
        return Description(**self._driver.ask("describe_group", group=group))

    def offsets(self, group: str, topic: str) -> Offsets:
        found = self._driver.ask("group_offsets", group=group, topic=topic)
        return {int(partition): (offset, metadata) for partition, (offset, metadata) in found.items()}

    def delete(self, group: str) -> None:
        self._driver.ask("delete_group", group=group)

    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        self._driver.ask("delete_group_offset", group=group, topic=topic, partition=partition)
