"""What the brokers of a cluster agree on: who they are, which topics there are, who leads which partition.

`MetadataStore` is where it is kept, `ClusterImage` what it says, `ClusterMetadata` who changes it.
"""

from skylog.cluster.embedded import EmbeddedStore
from skylog.cluster.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from skylog.cluster.metadata import ClusterMetadata
from skylog.cluster.store import Change, Entry, MetadataStore, VersionConflictError

__all__ = [
    "BrokerImage",
    "Change",
    "ClusterImage",
    "ClusterMetadata",
    "EmbeddedStore",
    "Entry",
    "MetadataStore",
    "PartitionImage",
    "TopicImage",
    "VersionConflictError",
]
