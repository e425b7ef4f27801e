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
from tests.certificate import write_certificate

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

SECURED_USER: Final = "me"
SECURED_PASSWORD: Final = "secret"
_SECURED: Final = """listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller},SASL_SSL://127.0.0.1:{secured}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secured}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config={modules}.plain.PlainLoginModule required user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={modules}.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={modules}.scram.ScramLoginModule required;
"""


class KafkaProcess:
    """Starts with the block and ends with it; its data lies in `directory`.

    If `is_secured`, it also listens at `secured` with TLS and SASL. The certificate to trust is `authority`.
    """

    def __init__(self, jars: Sequence[Path], directory: Path, *, is_secured: bool = False) -> None:
        port, controller, secured = _free_ports()
        self.bootstrap, self.secured = f"127.0.0.1:{port}", f"127.0.0.1:{secured}"
        self.authority = directory / "ca.pem"
        self._format_options: list[str] = []
        self._properties = directory / "server.properties"
        settings = _SETTINGS.format(port=port, controller=controller, data=directory / "data")
        if is_secured:
            write_certificate(directory)
            keystore = directory / "keystore.pem"
            keystore.write_text((directory / "key.pem").read_text() + self.authority.read_text())
            names = {"user": SECURED_USER, "password": SECURED_PASSWORD, "modules": "org.apache.kafka.common.security"}
            settings += _SECURED.format(port=port, controller=controller, secured=secured, keystore=keystore, **names)
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                user = f"{mechanism}=[name={SECURED_USER},password={SECURED_PASSWORD}]"
                self._format_options += ["--add-scram", user]
        self._properties.write_text(settings)
        self._log = directory / "kafka.log"
        self._java = ["java", *_OPTIONS, "-cp", ":".join(map(str, jars))]

    def __enter__(self) -> Self:
        command = [*self._java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._properties)]
        command += self._format_options
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


def _free_ports() -> list[int]:
    with socket.socket() as first, socket.socket() as second, socket.socket() as third:
        sockets = (first, second, third)
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
