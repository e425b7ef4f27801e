"""The metrics of replication: leaders and followers, in-sync sets, elections, the traffic between brokers.

A standalone broker leads all partitions and is the controller. The figures of a cluster are 0 for it.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skylog.cluster.image import NO_LEADER
from skylog.metric import Kind, Metric, Sample

if TYPE_CHECKING:
    from skylog.broker.broker import Broker
    from skylog.broker.partition import Partition

_AT_ONCE: Final = 200


@dataclass(slots=True)
class ReplicaFigures:
    """Counts over the replicas of a broker, and the largest lags."""

    led: int = 0
    under_replicated: int = 0
    under_min_in_sync: int = 0
    at_min_in_sync: int = 0
    lag: int = 0
    follower_lag: int = 0

    def add(self, partition: Partition) -> None:
        if not partition.is_leader:
            self.lag = max(self.lag, partition.lag)
            return
        self.led += 1
        self.under_replicated += is_under_replicated(partition)
        self.under_min_in_sync += not partition.has_enough_replicas
        self.at_min_in_sync += partition.in_sync_count == partition.required_in_sync
        self.follower_lag = max(self.follower_lag, partition.follower_lag)


def is_under_replicated(partition: Partition) -> bool:
    """Whether replicas of a led partition are out of sync, apart from those that a reassignment adds."""
    image = partition.image
    return image is not None and len(image.in_sync_replicas) < len(image.replicas) - len(image.adding)


async def replication_metrics(broker: Broker) -> list[Metric]:
    figures = ReplicaFigures()
    for number, partition in enumerate(broker.replicas.all()):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        figures.add(partition)
    return [*_replicas(broker, figures), *_controller(broker), *_traffic(broker)]


def _replicas(broker: Broker, figures: ReplicaFigures) -> list[Metric]:
    server, replicas = "kafka_server_replicamanager", broker.replicas
    return [
        _gauge(f"{server}_leadercount", "Partitions that this broker leads.", figures.led),
        _gauge(
            f"{server}_underreplicatedpartitions",
            "Led partitions with out-of-sync replicas.",
            figures.under_replicated,
        ),
        _gauge(
            f"{server}_underminisrpartitioncount",
            "Led partitions with too few in-sync replicas for acks=all.",
            figures.under_min_in_sync,
        ),
        _gauge(
            f"{server}_atminisrpartitioncount",
            "Led partitions with just enough in-sync replicas for acks=all.",
            figures.at_min_in_sync,
        ),
        _counter(
            f"{server}_isrshrinks_total",
            "In-sync sets of led partitions that lost a replica.",
            replicas.in_sync_shrinks,
        ),
        _counter(
            f"{server}_isrexpands_total",
            "In-sync sets of led partitions that gained a replica.",
            replicas.in_sync_expands,
        ),
        _counter(
            f"{server}_failedisrupdates_total",
            "Changes of in-sync sets that could not be committed.",
            broker.membership.counts.failed_in_sync_changes,
        ),
        _gauge(
            "kafka_server_replicafetchermanager_maxlag",
            "Committed messages that a follower on this broker does not have yet, at most.",
            figures.lag,
        ),
        _gauge(
            "skylog_follower_max_lag",
            "Messages that a follower of a led partition does not have yet, at most.",
            figures.follower_lag,
        ),
    ]


def _controller(broker: Broker) -> list[Metric]:
    image, counts = broker.metadata.image, broker.membership.counts
    is_controller = image.controller_id == broker.identity.node_id
    offline = sum(each.leader == NO_LEADER for topic in image.topics.values() for each in topic.partitions)
    controller, stats = "kafka_controller_kafkacontroller", "kafka_controller_controllerstats"
    return [
        _gauge(f"{controller}_activecontrollercount", "1 on the broker that is the controller.", int(is_controller)),
        _gauge(
            f"{controller}_offlinepartitionscount",
            "Partitions of the cluster without a leader. 0 on brokers that are not the controller.",
            offline if is_controller else 0,
        ),
        _counter("skylog_leader_elections_total", "Leaders that this broker has elected.", counts.elections),
        _counter(
            f"{stats}_uncleanleaderelections_total",
            "Leaders that this broker has elected although they may lack committed messages.",
            counts.unclean_elections,
        ),
        _counter(
            "kafka_server_sessionexpirelistener_zookeeperexpires_total",
            "Sessions with the metadata store that have expired.",
            counts.session_expirations,
        ),
    ]


def _traffic(broker: Broker) -> list[Metric]:
    topics, counts = "kafka_server_brokertopicmetrics", broker.membership.counts
    return [
        _counter(f"{topics}_replicationbytesin_total", "Bytes of batches copied from leaders.", counts.bytes_in),
        _counter(f"{topics}_replicationbytesout_total", "Bytes of batches sent to followers.", counts.bytes_out),
    ]


def _gauge(name: str, help_text: str, value: float) -> Metric:
    return _metric(name, "gauge", help_text, value)


def _counter(name: str, help_text: str, value: float) -> Metric:
    return _metric(name, "counter", help_text, value)


def _metric(name: str, kind: Kind, help_text: str, value: float) -> Metric:
    return Metric(name, kind, help_text, [Sample(value, {})])
