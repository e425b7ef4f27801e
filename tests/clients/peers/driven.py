"""A client in another language, behind a driver process that speaks JSON by the line.

The drivers (`kafkajs/driver.mjs`, `platformatic/driver.mjs`, `java/Driver.java`, `franz/main.go`) know the same
operations under the same names, so one class serves them all.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from .peer import CODECS, PATIENCE_S, Alteration, At, ClusterDescription, Config, Place, Position, Refused, Tail
from .record import Record

_ANSWER_TIMEOUT_S = 3 * PATIENCE_S


def _as_json(position: Position) -> dict[str, Any]:
    match position:
        case Place():
            return {"kind": position.value}
        case Tail(count):
            return {"kind": "tail", "value": count}
        case At(timestamp_ms):
            return {"kind": "at", "value": timestamp_ms}
        case int():
            return {"kind": "offset", "value": position}


class Driver:
    """One driver process; requests are answered in order, and a silent one is killed."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - open as long as the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=dict(environment),
            text=True,
        )

    def ask(self, operation: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = threading.Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps({"operation": operation, **arguments}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        if not line:
            self._errors.seek(0)
            raise AssertionError(f"the driver ended: {self._errors.read()[-2000:]}")
        answer = json.loads(line)
        if "error" in answer:
            code, message = answer["error"]["code"], answer["error"]["message"]
            if code is None:
                raise AssertionError(message)
            raise Refused(code, message)
        return answer["result"]

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()


class DrivenReader:
    def __init__(self, driver: Driver, number: int) -> None:
        self._driver = driver
        self._number = number

    def take(self, count: int) -> list[Record]:
        answer = self._driver.ask("take", reader=self._number, count=count)
        return [Record.from_json(record) for record in answer]


class DrivenPeer:
    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.codecs: Sequence[str] = CODECS

    def close(self) -> None:
        self.driver.close()

    def produce(
        self,
        topic: str,
        partition: int,
        records: Sequence[Record],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        encoded = [record.to_json() for record in records]
        settings = {"codec": codec, "acks": acks, "idempotent": idempotent}
        self.driver.ask("produce", topic=topic, partition=partition, records=encoded, **settings)

    @contextmanager
    def open(self, topic: str, partition: int, start: Position) -> Iterator[DrivenReader]:
        number = self.driver.ask("open", topic=topic, partition=partition, start=_as_json(start))
        try:
            yield DrivenReader(self.driver, number)
        finally:
            self.driver.ask("close", reader=number)

    def offset_for(self, topic: str, partition: int, at: Place | At) -> int | None:
        offset = self.driver.ask("offset", topic=topic, partition=partition, at=_as_json(at))
        return None if offset == -1 else int(offset)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        self.driver.ask(
            "create_topic",
            topic=name,
            partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config or {}),
            validate_only=validate_only,
        )

    def delete_topic(self, name: str) -> None:
        self.driver.ask("delete_topic", topic=name)

    def topics(self) -> set[str]:
        return set(self.driver.ask("topics"))

    def partition_count(self, topic: str) -> int:
        return int(self.driver.ask("partition_count", topic=topic))

    def create_partitions(self, topic: str, total: int) -> None:
        self.driver.ask("create_partitions", topic=topic, total=total)

    def configs(self, topic: str) -> Mapping[str, Config]:
        return {name: Config(value, default) for name, value, default in self.driver.ask("configs", topic=topic)}

    def alter_config(self, topic: str, operation: Alteration, key: str, value: str | None) -> None:
        self.driver.ask("alter_config", topic=topic, alteration=operation.value, key=key, value=value)

    def replace_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self.driver.ask("replace_configs", topic=topic, configs=dict(configs))

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        self.driver.ask("delete_records", topic=topic, partition=partition, before=before)

    def cluster(self) -> ClusterDescription:
        answer = self.driver.ask("cluster")
        brokers = {number: (host, port) for number, host, port in answer["brokers"]}
        return ClusterDescription(answer["cluster_id"], answer["controller_id"], brokers)
