"""CreateTopics (key 19), versions 2-7: create topics, with counts and configs or with an explicit assignment.

Version 4 made -1 partitions or replicas mean the broker's default (KIP-464), 5 added the compact encoding and the
topic's configs in the response (KIP-525), 7 the topic id (KIP-516). 3 equals 2; 6 only allows a throttling error.
"""

from __future__ import annotations

from uuid import UUID

from skylog.protocol.schema import ZERO_UUID, Int8, Int16, Int32, Message, field, message, struct


@struct
class CreatableReplicaAssignment:
    partition_index: Int32 = field("0+")
    broker_ids: list[Int32] = field("0+")


@struct
class CreatableTopicConfig:
    name: str = field("0+")
    value: str | None = field("0+", nullable="0+")


@struct
class CreatableTopic:
    """Either counts, or -1 for both and `assignments`."""

    name: str = field("0+")
    num_partitions: Int32 = field("0+")
    replication_factor: Int16 = field("0+")
    assignments: list[CreatableReplicaAssignment] = field("0+", default_factory=list)
    configs: list[CreatableTopicConfig] = field("0+", default_factory=list)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsRequest(Message):
    topics: list[CreatableTopic] = field("0+")
    timeout_ms: Int32 = field("0+", default=60000)
    validate_only: bool = field("1+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = field("5+")
    value: str | None = field("5+", nullable="5+")
    read_only: bool = field("5+", default=False)
    config_source: Int8 = field("5+", default=-1)
    is_sensitive: bool = field("5+", default=False)


@struct
class CreatableTopicResult:
    """Java's admin client uses the counts only if `configs` is not null."""

    name: str = field("0+")
    topic_id: UUID = field("7+", default=ZERO_UUID)
    error_code: Int16 = field("0+", default=0)
    error_message: str | None = field("1+", nullable="0+", default=None)
    topic_config_error_code: Int16 = field("5+", tag=0, default=0)
    num_partitions: Int32 = field("5+", default=-1)
    replication_factor: Int16 = field("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = field("5+", nullable="5+", default_factory=list)


@message(api_key=19, versions="2-7", flexible="5+")
class CreateTopicsResponse(Message):
    throttle_time_ms: Int32 = field("2+", default=0)
    topics: list[CreatableTopicResult] = field("0+")
