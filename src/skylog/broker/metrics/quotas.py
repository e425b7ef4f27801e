"""Metrics of quotas: what clients use, how long they were held, and refused connections.

As in Kafka, a client with a quota has a row by its user and client id; an empty label is one that the quota does not
depend on. The rows of clients that have been quiet for a while go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skylog.metric import Metric, Sample
from skylog.net.connection_limits import Refusal
from skylog.quotas import QuotaKey

if TYPE_CHECKING:
    from skylog.broker.broker import Broker

_TYPES: Final = {
    QuotaKey.PRODUCER_BYTE_RATE: "produce",
    QuotaKey.CONSUMER_BYTE_RATE: "fetch",
    QuotaKey.REQUEST_PERCENTAGE: "request",
    QuotaKey.CONTROLLER_MUTATION_RATE: "controllermutation",
}


def quota_metrics(broker: Broker) -> list[Metric]:
    active = broker.quotas.active
    used: dict[QuotaKey, list[Sample]] = {key: [] for key in _TYPES}
    waits: dict[QuotaKey, list[Sample]] = {key: [] for key in _TYPES}
    if active is not None:
        now_s = active.now_s()
        for (key, user, client_id), meter in active.meters.rates.items():
            labels = {"user": user or "", "client_id": client_id or ""}
            used[key].append(Sample(meter.rate(now_s), labels))
            waits[key].append(Sample(meter.throttled_s * 1000, labels))
        for (key, user, client_id), bucket in active.meters.mutations.items():
            labels = {"user": user or "", "client_id": client_id or ""}
            used[key].append(Sample(bucket.tokens(now_s), labels))
            waits[key].append(Sample(bucket.throttled_s * 1000, labels))
    refused = broker.listener.limits.refused
    return [
        Metric(
            "kafka_server_produce_byte_rate",
            "gauge",
            "Bytes per second that a client with a quota produces.",
            used[QuotaKey.PRODUCER_BYTE_RATE],
        ),
        Metric(
            "kafka_server_fetch_byte_rate",
            "gauge",
            "Bytes per second that a client with a quota fetches.",
            used[QuotaKey.CONSUMER_BYTE_RATE],
        ),
        Metric(
            "kafka_server_request_request_time",
            "gauge",
            "Percent of the event loop's time that the requests of a client with a quota take.",
            used[QuotaKey.REQUEST_PERCENTAGE],
        ),
        Metric(
            "kafka_server_controllermutation_tokens",
            "gauge",
            "Partitions that a client with a quota may create or delete at once.",
            used[QuotaKey.CONTROLLER_MUTATION_RATE],
        ),
        *(
            Metric(
                f"kafka_server_{name}_throttle_time_total",
                "counter",
                "Milliseconds that a client had to wait because of this quota.",
                waits[key],
            )
            for key, name in _TYPES.items()
        ),
        Metric(
            "skylog_connections_refused_total",
            "counter",
            "Connections closed because their address is beyond a limit.",
            [Sample(refused[each], {"limit": each.value}) for each in Refusal],
        ),
    ]
