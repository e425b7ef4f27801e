"""Administration of client quotas through a broker, over a connection of our own: librdkafka has no API for it."""

from __future__ import annotations

from skylog.client.cluster_requests import ClusterRequests
from skylog.client.connection import Connection
from skylog.client.peer_requests import check_response
from skylog.protocol.alter_client_quotas import (
    AlterClientQuotasRequest,
    QuotaAlteration,
    QuotaEntity,
    QuotaOperation,
)
from skylog.protocol.describe_client_quotas import DescribeClientQuotasRequest
from skylog.quotas import Entity, QuotaKey


class QuotaAdmin:
    """Sets, lists and removes the quotas of a cluster. Raises KafkaError and BrokerUnreachableError."""

    def __init__(self, bootstrap: str | None = None) -> None:
        self._connection = Connection(bootstrap)
        self._requests = ClusterRequests(self._connection, self._connection.admin_client())

    def quotas(self) -> dict[Entity, dict[QuotaKey, float]]:
        """Return all quotas by entity."""
        response = self._requests.ask_any(DescribeClientQuotasRequest(components=[]), "cannot list the quotas")
        return {
            tuple((part.entity_type, part.entity_name) for part in row.entity): {
                QuotaKey(value.key): value.value for value in row.values
            }
            for row in response.entries or []
        }

    def change(self, entity: Entity, changes: dict[QuotaKey, float | None]) -> None:
        """Set quotas of an entity; None removes one."""
        entry = QuotaAlteration(
            entity=[QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in changes.items()],
        )
        doing = "cannot change the quotas"
        for row in self._requests.ask_any(AlterClientQuotasRequest(entries=[entry]), doing).entries:
            check_response(row, doing)
