"""`/cluster`: the brokers with their load, partitions with problems, reassignments under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from starlette.requests import Request

from skylog.client import ClusterBroker, ClusterDescription, PartitionState, Reassignment
from skylog.client.brokers import LogDirectory
from skylog.console.monitoring import figures as figure
from skylog.console.monitoring.cluster_monitor import ClusterMonitor
from skylog.console.rendering.pagination import paginate
from skylog.console.server.fields import query
from skylog.console.server.page import Page, Route, console_of

_PROBLEMS_PER_PAGE: Final = 100
_MAX_REASSIGNMENTS: Final = 100


async def cluster(request: Request) -> Page:
    console = console_of(request)
    await console.replicas.first_attempt()
    await console.monitor.first_attempt()
    monitor, found = console.monitor, console.replicas.latest
    if found is None:
        return Page("problem.html", "Error", {"error": console.replicas.problem}, 503)
    problems, paging = paginate(found.problems, query(request), _PROBLEMS_PER_PAGE)
    document = {
        "as_of_ms": console.replicas.taken_at_ms,
        "problem": console.replicas.doubt,
        "cluster_id": found.cluster_id,
        "controller_id": found.controller_id,
        "figures": _figures(found),
        "brokers": _brokers(found, monitor, console.replicas.directories),
        "problems": [_partition(each) for each in problems],
        "paging": paging,
        "reassignments": [_reassignment(each) for each in found.reassignments[:_MAX_REASSIGNMENTS]],
        "reassignments_problem": found.reassignments_problem,
        "measured_broker": monitor.parent_id,
        "messages_in": {
            str(node_id): monitor.history.points((figure.BROKER_MESSAGES_IN, str(node_id)))
            for node_id in found.broker_ids
        },
    }
    return Page("cluster.html", "Cluster", document)


def _figures(found: ClusterDescription) -> dict[str, int]:
    return {
        "brokers": len(found.brokers),
        "missing_brokers": len(found.missing_broker_ids),
        "partitions": len(found.partitions),
        "offline": len(found.offline),
        "under_replicated": len(found.under_replicated),
        "reassigned": len(found.reassignments),
        "not_preferred": sum(each.leader != each.preferred_leader for each in found.partitions if not each.is_offline),
    }


def _brokers(
    found: ClusterDescription, monitor: ClusterMonitor, directories: Mapping[int, Sequence[LogDirectory]]
) -> list[dict[str, Any]]:
    """Return a row for each broker, live or missing. Bytes in and out are known only of the parent broker."""
    live = {broker.node_id: broker for broker in found.brokers}
    rows = []
    for node_id, load in found.loads().items():
        row = {
            "node_id": node_id,
            **_address(live.get(node_id)),
            "is_controller": node_id == found.controller_id,
            "leaders": load.leaders,
            "replicas": load.replicas,
            "out_of_sync": load.out_of_sync,
            "messages_in_per_s": monitor.history.last((figure.BROKER_MESSAGES_IN, str(node_id))),
            "is_measured": node_id == monitor.parent_id,
        }
        rows.append(row | _measured(monitor, row["is_measured"]) | _disk(directories.get(node_id, ())))
    return rows


def _address(broker: ClusterBroker | None) -> dict[str, Any]:
    if broker is None:
        return {"is_live": False, "host": None, "port": None, "rack": None}
    return {"is_live": True, "host": broker.host, "port": broker.port, "rack": broker.rack}


def _measured(monitor: ClusterMonitor, is_measured: bool) -> dict[str, float | None]:
    history, metrics = monitor.history, monitor.latest.metrics
    values = {
        "bytes_in_per_s": history.last((figure.BYTES_IN,)),
        "bytes_out_per_s": history.last((figure.BYTES_OUT,)),
        "connections": metrics.total("kafka_server_socketservermetrics_connection_count"),
    }
    return values if is_measured else dict.fromkeys(values)


def _disk(directories: Sequence[LogDirectory]) -> dict[str, int | None]:
    """Return the size of a broker's logs, and the free space of their disks: -1 in the protocol if it is unknown."""
    free = [each.free_bytes for each in directories if each.free_bytes >= 0]
    return {
        "stored_bytes": sum(each.size_bytes for each in directories) if directories else None,
        "disk_free_bytes": sum(free) if free else None,
    }


def _partition(each: PartitionState) -> dict[str, Any]:
    return {
        **each.partition._asdict(),
        "leader": each.leader,
        "replicas": each.replicas,
        "in_sync_replicas": each.in_sync_replicas,
        "offline_replicas": each.offline_replicas,
        "is_offline": each.is_offline,
    }


def _reassignment(each: Reassignment) -> dict[str, Any]:
    return {**each.partition._asdict(), "target": each.target, "adding": each.adding, "removing": each.removing}


ROUTES: Final[tuple[Route, ...]] = (("/cluster", cluster, ["GET"]),)
