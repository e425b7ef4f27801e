"""Apache Kafka as a process: one node that is broker and controller, from the jars of `jars`."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from skylog.testing import wait_until

_CLUSTER_ID: Final = "MkU3OEVBNTcwNTJENDM2Qg"
_OPTIONS: Final = (
    "-Xmx384m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
_SETTINGS: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
"""


class KafkaProcess:
    """Starts with the block and ends with it; its data lies in `directory`."""

    def __init__(self, jars: Sequence[Path], directory: Path) -> None:
        port, controller = _free_ports()
        self.bootstrap = f"127.0.0.1:{port}"
        self._properties = directory / "server.properties"
        self._properties.write_text(_SETTINGS.format(port=port, controller=controller, data=directory / "data"))
        self._log = directory / "kafka.log"
        self._java = ["java", *_OPTIONS, "-cp", ":".join(map(str, jars))]

    def __enter__(self) -> Self:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._properties)]
        subprocess.run(command, check=True, capture_output=True, timeout=60)
        with self._log.open("wb") as log:
            command = [*self._java, "kafka.Kafka", str(self._properties)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._answers, "Apache Kafka to answer", 90)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-1000:]
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]
