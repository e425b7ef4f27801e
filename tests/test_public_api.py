"""What applications write their code against. A change here is a change for all of them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import Any

import pytest

import skylog

PUBLIC = {
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerGroups",
    "Message",
    "Producer",
    "SimpleConsumer",
    "__version__",
    "message_streams",
}

SIGNATURES = {
    "Producer": "bootstrap *acks *compression *partitioner *serializer *key_serializer *audit *config",
    "Producer.send": "topic value key *partition *headers *timestamp_ms *wait",
    "Producer.offer": "topic value key timestamp_ms",
    "Producer.batch": "",
    "Producer.flush": "timeout_s",
    "Producer.close": "timeout_s",
    "SimpleConsumer": "topic partition offset bootstrap *deserializer *config",
    "SimpleConsumer.consume": "max_messages timeout_s",
    "SimpleConsumer.seek_to_time": "timestamp_ms",
    "Consumer": "topics group bootstrap *start *commit *deserializer *audit *config",
    "Consumer.consume": "max_messages timeout_s",
    "Consumer.commit": "",
    "Consumer.seek": "topic partition offset",
    "Consumer.seek_to_time": "timestamp_ms",
    "Consumer.rewind": "",
    "Consumer.stop": "",
    "Consumer.close": "",
    "message_streams": "topics group bootstrap **options",
    "AsyncProducer.send": "topic value key **options",
    "AsyncConsumer.consume": "max_messages timeout_s",
    "AsyncConsumer.commit": "",
    "Admin": "bootstrap client",
    "Admin.create_topic": "name partitions replication_factor configs",
    "ConsumerGroups": "bootstrap",
}
MARKS: dict[object, str] = {
    inspect.Parameter.KEYWORD_ONLY: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.VAR_POSITIONAL: "+",
}


def test_the_names_are_these_and_all_of_them_are_there() -> None:
    assert set(skylog.__all__) == PUBLIC
    assert all(getattr(skylog, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError):
        skylog.NoSuchThing  # noqa: B018


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_parameters_are_these(name: str) -> None:
    found: Any = skylog
    for part in name.split("."):
        found = getattr(found, part)
    parameters = [parameter for parameter in inspect.signature(found).parameters.values() if parameter.name != "self"]
    assert " ".join(MARKS.get(each.kind, "") + each.name for each in parameters) == SIGNATURES[name]


@pytest.mark.parametrize("name", sorted(PUBLIC - {"__version__"}))
def test_everything_public_is_documented(name: str) -> None:
    assert getattr(skylog, name).__doc__


def test_importing_skylog_loads_no_client() -> None:
    script = "import sys, skylog; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
