"""Mirrors of a skylog cluster: creates, describes, pauses, promotes and deletes them, through any of its brokers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from confluent_kafka.admin import AdminClient

from skylog.client.cluster import ClusterBroker
from skylog.client.cluster_requests import brokers_of
from skylog.client.connection import Connection
from skylog.client.kafka_settings import read_client_config
from skylog.client.peer_requests import ask, ask_some
from skylog.errors import ConfigError, ErrorCode, KafkaError, SkylogError
from skylog.net.peer import PeerError
from skylog.protocol.mirrors import AlterMirrorsRequest, DescribeMirrorsRequest

POLL_S: Final = 0.1
_FILES: Final = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_TAKEN: Final = (
    "security.protocol",
    "sasl.mechanisms",
    "sasl.username",
    "sasl.password",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
    *_FILES.values(),
)


@dataclass(frozen=True, slots=True)
class MirrorPartition:
    """A partition of a mirror topic, as its leader sees it. Offsets of the source and lags are None while unknown.

    `status` is starting, mirroring, failing, diverged, paused, promoting or promoted; `offline` without a leader.
    """

    topic: str
    partition: int
    status: str
    offset: int | None = None
    start_offset: int | None = None
    high_watermark: int | None = None
    source_offset: int | None = None
    lag: int | None = None
    lag_s: float | None = None
    skipped: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class MirrorDescription:
    """A mirror, and the state of its partitions. `problems` has the topics of the source that cannot be mirrored."""

    name: str
    source: str
    topics: Sequence[str]
    groups: Sequence[str]
    prefix: str
    paused: bool
    ending: bool
    mirrored: Mapping[str, Mapping[str, str]]
    partitions: Sequence[MirrorPartition] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[str] = ()
    groups_copied: int = 0

    @property
    def lag(self) -> int:
        return sum(each.lag or 0 for each in self.partitions)

    @property
    def lag_s(self) -> float:
        return max((each.lag_s or 0.0 for each in self.partitions), default=0.0)

    @property
    def skipped(self) -> int:
        return sum(each.skipped for each in self.partitions)

    @property
    def status(self) -> str:
        """The worst status of its partitions."""
        found = {each.status for each in self.partitions}
        for status in ("diverged", "failing", "offline"):
            if status in found:
                return status
        if self.paused:
            return "paused"
        if self.problems or self.errors:
            return "failing"
        for status in ("starting", "promoting", "mirroring", "promoted"):
            if status in found:
                return status
        return "starting"


class MirrorAdmin:
    """Administers the mirrors of a cluster. Methods raise SkylogError."""

    def __init__(self, connection: Connection, client: AdminClient | None = None) -> None:
        self._connection = connection
        self._client = client or connection.admin_client()

    def create(
        self,
        name: str,
        source: str,
        topics: Sequence[str],
        groups: Sequence[str] = (),
        prefix: str = "",
        client: Mapping[str, str] | None = None,
        *,
        adopt: bool = False,
    ) -> None:
        """Create a mirror. `client` has the settings to connect to the source: see `source_settings`.

        With `adopt` it continues topics that this cluster has already.
        """
        document = {
            "source": source,
            "topics": list(topics),
            "groups": list(groups),
            "prefix": prefix,
            "client": dict(client or {}),
            "adopts": adopt,
        }
        self._alter(name, "create", document)

    def pause(self, name: str) -> None:
        self._alter(name, "pause", {})

    def resume(self, name: str) -> None:
        self._alter(name, "resume", {})

    def promote(self, name: str, topics: Sequence[str] | None = None, timeout_s: float = 30.0) -> list[str]:
        """Make topics writable, by default all, and return them when they are."""
        before = self.describe(name)
        self._alter(name, "promote", {} if topics is None else {"topics": list(topics)})
        names = sorted(before.mirrored if topics is None else topics)
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.describe(name).mirrored
            waiting = [each for each in names if each in found and found[each]["state"] != "promoted"]
            if not waiting:
                return names
            if time.monotonic() > deadline:
                raise SkylogError(
                    f"{', '.join(waiting)}: not promoted after {timeout_s:g} s; see skylog mirror describe"
                )
            time.sleep(POLL_S)

    def delete(self, name: str, timeout_s: float = 30.0) -> None:
        """Promote all topics of a mirror and remove it. The topics stay."""
        self._alter(name, "delete", {})
        deadline = time.monotonic() + timeout_s
        while any(each.name == name for each in self.list_mirrors()):
            if time.monotonic() > deadline:
                raise SkylogError(f"mirror {name} is not removed after {timeout_s:g} s; see skylog mirror describe")
            time.sleep(POLL_S)

    def list_mirrors(self) -> list[MirrorDescription]:
        return self._describe(None)

    def describe(self, name: str) -> MirrorDescription:
        return self._describe(name)[0]

    # -- requests

    def _brokers(self) -> list[ClusterBroker]:
        return brokers_of(self._connection.metadata(self._client))

    def _alter(self, name: str, action: str, document: Mapping[str, Any]) -> None:
        request = AlterMirrorsRequest(name=name, action=action, document=json.dumps(document))
        error: SkylogError | None = None
        for broker in self._brokers():
            try:
                answer = ask(broker, request, self._connection.timeout_s, self._connection.peer_security())
            except PeerError as failed:
                error = failed
                continue
            except KafkaError as failed:
                raise _unsupported(failed) from failed
            if answer.error_code:
                raise KafkaError(
                    ErrorCode(answer.error_code), answer.error_message or ErrorCode(answer.error_code).name
                )
            return
        raise error or SkylogError("the cluster has no brokers now")

    def _describe(self, name: str | None) -> list[MirrorDescription]:
        """Ask all brokers: each one knows the partitions that it leads."""
        brokers, request = self._brokers(), DescribeMirrorsRequest(name=name)
        answers, failures = ask_some(brokers, request, self._connection.timeout_s, self._connection.peer_security())
        if not answers:
            raise _unsupported(failures[0]) if failures else SkylogError("the cluster has no brokers now")
        views: dict[str, list[dict[str, Any]]] = {}
        for answer in answers:
            if answer.error_code:
                raise KafkaError(
                    ErrorCode(answer.error_code), answer.error_message or ErrorCode(answer.error_code).name
                )
            for view in json.loads(answer.document):
                views.setdefault(view["name"], []).append(view)
        counts = {topic: len(row.partitions) for topic, row in self._connection.metadata(self._client).topics.items()}
        return [_merge(views[each], counts) for each in sorted(views)]


def _merge(views: Sequence[Mapping[str, Any]], counts: Mapping[str, int]) -> MirrorDescription:
    """Merge what several brokers know of a mirror."""
    first = views[0]
    partitions = {
        (row["topic"], row["partition"]): MirrorPartition(**row) for view in views for row in view["partitions"]
    }
    for topic in first["mirrored"]:
        for index in range(counts.get(topic, 0)):
            partitions.setdefault((topic, index), MirrorPartition(topic, index, "offline"))
    problems = {topic: reason for view in views for topic, reason in view["problems"].items()}
    errors = {text: None for view in views for text in (view["error"], view["groups_error"]) if text}
    return MirrorDescription(
        **{key: first[key] for key in ("name", "source", "topics", "groups", "prefix", "paused", "ending", "mirrored")},
        partitions=[partitions[key] for key in sorted(partitions)],
        problems=problems,
        errors=list(errors),
        groups_copied=sum(view["groups_copied"] for view in views),
    )


def _unsupported(error: SkylogError) -> SkylogError:
    if isinstance(error, KafkaError) and error.code is ErrorCode.UNSUPPORTED_VERSION:
        return SkylogError("the cluster is not skylog, or older: only skylog clusters can be the target of a mirror")
    return error


def source_settings(path: str | Path | None) -> dict[str, str]:
    """Return the settings to connect to a source from a properties file, with the certificates that it names.

    The brokers of the target connect, so they get the content of the files. Raises ConfigError.
    """
    given = {} if path is None else {key: str(value) for key, value in read_client_config(path).items()}
    for key, target in _FILES.items():
        if key in given and target not in given:
            try:
                given[target] = Path(given[key]).read_text("ascii")
            except (OSError, ValueError) as error:
                raise ConfigError(f"cannot read {key}={given[key]}: {error}") from error
    return {key: value for key, value in given.items() if key in _TAKEN}
