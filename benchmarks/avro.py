"""Rows per second from a topic into Spark columns: events as Avro, by a registry, and the same events as JSON.

Both topics have the same events, and both reads give the same columns. They alternate in one Spark session.
"""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.channel import create_topic
from benchmarks.report import Check, Column, Options, Report, Table, median
from benchmarks.servers import broker
from benchmarks.spark_read import CORES, PARTITIONS, WARM_UPS, session

BAR = 1.5
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "PageView",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "event", "type": "string"},
        {"name": "timestamp", "type": "double"},
        {
            "name": "user",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "User",
                    "fields": [
                        {"name": "id", "type": "long"},
                        {"name": "created_at", "type": ["null", "double"], "default": None},
                    ],
                },
            ],
        },
        {
            "name": "attributes",
            "type": {
                "type": "record",
                "name": "Attributes",
                "fields": [
                    {"name": "page", "type": "string"},
                    {"name": "ms", "type": "int"},
                    {"name": "referrer", "type": ["null", "string"]},
                    {"name": "tags", "type": {"type": "array", "items": "string"}},
                ],
            },
        },
        {"name": "server", "type": "string"},
        {"name": "application", "type": "string"},
    ],
}
DDL = (
    "id STRING, event STRING, timestamp DOUBLE, user STRUCT<id: BIGINT, created_at: DOUBLE>, "
    "attributes STRUCT<page: STRING, ms: INT, referrer: STRING, tags: ARRAY<STRING>>, server STRING, application STRING"
)


def event(number: int) -> dict[str, Any]:
    return {
        "id": f"{number:032x}",
        "event": "page.view",
        "timestamp": 1_700_000_000 + number / 1000,
        "user": {"id": number % 1000, "created_at": 1_600_000_000.0} if number % 5 else None,
        "attributes": {
            "page": f"/articles/{number % 997}",
            "ms": number % 3000,
            "referrer": None if number % 3 else "https://example.org/search",
            "tags": ["a", "news"][: number % 3],
        },
        "server": "web-1",
        "application": "blog",
    }


def fill(bootstrap: str, registry: str, count: int) -> None:
    """Produce the events to the topics `json` and `avro`."""
    import fastavro
    import orjson
    from confluent_kafka import Producer

    from skylog.schemas.framing import frame
    from skylog.schemas.registry_client import RegistryClient, SchemaText

    schema_id = RegistryClient(registry).register("avro-value", SchemaText(json.dumps(SCHEMA)))
    parsed = fastavro.parse_schema(SCHEMA)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 2 * count})
    for number in range(count):
        value = event(number)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        producer.produce("avro", frame(schema_id, out.getvalue()), partition=number % PARTITIONS)
        producer.produce("json", orjson.dumps(value), partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush()


def read_all(spark: Any, bootstrap: str, topic: str, options: dict[str, str]) -> float:
    """Return the seconds from the load of the frame to its last row."""
    began = time.perf_counter()
    reader = spark.read.format("skylog").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    rows = reader.options(valueFormat=topic, **options).load().select("offset", "event.*", "_corrupt")
    rows.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def run(options: Options) -> Report:
    from tests.registry.registry_process import running_registry

    count = 200_000 if options.quick else 1_000_000
    report = Report("avro", f"{count:,} events from a topic of {PARTITIONS} partitions into columns, local[{CORES}]")
    work_dir = Path(tempfile.mkdtemp(prefix="skylog-avro-", dir=options.work_dir))
    spark, _ = session()
    taken: dict[str, list[float]] = {"avro": [], "json": []}
    try:
        with broker(work_dir / "data", core=None) as server, running_registry(server.bootstrap) as registry:
            for topic in taken:
                create_topic(server.address, topic, PARTITIONS)
            fill(server.bootstrap, registry.url, count)
            how = {"avro": {"schemaRegistryUrl": registry.url}, "json": {"valueSchema": DDL}}
            for _ in range(options.rounds + WARM_UPS):
                for topic, seconds in taken.items():
                    seconds.append(read_all(spark, server.bootstrap, topic, how[topic]))
    finally:
        spark.stop()
        shutil.rmtree(work_dir)
    found = {topic: median(seconds[WARM_UPS:]) for topic, seconds in taken.items()}
    rows = [
        {"what": topic, "rows_s": count / seconds, "over": found["json"] / seconds} for topic, seconds in found.items()
    ]
    report.tables.append(Table("rows per second; medians", _COLUMNS, rows))
    report.checks.append(Check("Avro over JSON", found["json"] / found["avro"], BAR))
    return report


_COLUMNS = [
    Column("what", "values"),
    Column("rows_s", "rows/s", "{:,.0f}"),
    Column("over", "over JSON", "{:.2f}×"),
]
