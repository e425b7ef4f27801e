"""Administration of SCRAM users through a broker."""

from __future__ import annotations

from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from skylog.client.cluster_requests import ClusterRequests
from skylog.client.connection import Connection
from skylog.errors import ErrorCode, KafkaError
from skylog.protocol.describe_user_scram_credentials import DescribeUserScramCredentialsRequest

MECHANISMS: Final = {
    "SCRAM-SHA-256": ScramMechanism.SCRAM_SHA_256,
    "SCRAM-SHA-512": ScramMechanism.SCRAM_SHA_512,
}
_NAMES: Final = {value.value: key for key, value in MECHANISMS.items()}


class UserAdmin:
    """Adds, lists and removes SCRAM users of a cluster."""

    def __init__(self, bootstrap: str | Connection | None = None) -> None:
        self._connection = bootstrap if isinstance(bootstrap, Connection) else Connection(bootstrap)
        self._admin = self._connection.admin_client()

    def add(self, name: str, password: str, mechanisms: list[str], iterations: int) -> None:
        """Add a user, or replace the password of one. Raises SkylogError."""
        self._connection.metadata(self._admin)
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(name, ScramCredentialInfo(MECHANISMS[each], iterations), password.encode())
            for each in mechanisms
        ]
        self._finish(self._admin.alter_user_scram_credentials(changes), f"cannot add the user {name}")

    def users(self) -> dict[str, dict[str, int]]:
        """Return the iterations by mechanism of each user. Raises SkylogError."""
        # Not with librdkafka: if the broker refuses it, confluent-kafka 2.16 frees memory twice.
        request, doing = DescribeUserScramCredentialsRequest(users=None), "cannot list the users"
        rows = ClusterRequests(self._connection, self._admin).ask_any(request, doing).results
        return {
            row.user: {_NAMES[info.mechanism]: info.iterations for info in row.credential_infos}
            for row in sorted(rows, key=lambda row: row.user)
        }

    def remove(self, name: str) -> None:
        """Remove a user. Raises SkylogError if there is none."""
        known = self.users().get(name)
        if not known:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name}")
        changes: list[UserScramCredentialAlteration] = [
            UserScramCredentialDeletion(name, MECHANISMS[each]) for each in known
        ]
        self._finish(self._admin.alter_user_scram_credentials(changes), f"cannot remove the user {name}")

    def _finish(self, futures: Any, doing: str) -> None:
        try:
            for future in futures.values():
                future.result(self._connection.timeout_s)
        except KafkaException as error:
            raise self._connection.error(error, doing) from error
