"""Cluster metadata: the brokers, the topics, and the leader of each partition.

`MetadataStore` stores it, `ClusterImage` is an immutable snapshot of it, and `ClusterMetadata` changes it.
"""

from skylog.cluster.embedded import EmbeddedSession, EmbeddedStore
from skylog.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from skylog.cluster.metadata import ClusterMetadata
from skylog.cluster.store import (
    Entry,
    EntryChange,
    MetadataStore,
    SessionExpiredError,
    UnknownOutcomeError,
    VersionCheck,
    VersionConflictError,
)

__all__ = [
    "BrokerImage",
    "ClusterImage",
    "ClusterMetadata",
    "EmbeddedSession",
    "EmbeddedStore",
    "Entry",
    "EntryChange",
    "MetadataStore",
    "PartitionImage",
    "SessionExpiredError",
    "TopicImage",
    "UnknownOutcomeError",
    "VersionCheck",
    "VersionConflictError",
]
