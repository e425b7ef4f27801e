"""Clients in the child of a fork: those of the parent are neither used nor freed there."""

from __future__ import annotations

import subprocess
import sys

from skylog.testing import consume
from tests.patience import patience

HEAD = """
import gc, os, signal, sys
from skylog import Admin, Consumer, DeliveryError, Producer, SimpleConsumer, SkylogError

bootstrap, topic = sys.argv[1:]

def in_child(work):
    child = os.fork()
    if child == 0:
        signal.alarm(60)  # ends a child that hangs
        work()
        sys.exit(0)
    assert os.waitpid(child, 0)[1] == 0, work.__name__
"""


def run_script(script: str, bootstrap: str, topic: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script, bootstrap, topic], capture_output=True, timeout=patience(120), text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_child_frees_no_client_of_its_parent(skylog_bootstrap: str, skylog_topic: str) -> None:
    """Freeing waits for librdkafka's threads, which the child does not have."""
    script = """
producer = Producer(bootstrap)
producer.send(topic, "parent").result(30)
producer.close()
admin, consumer, reader = Admin(bootstrap), Consumer(topic, "forks", bootstrap), SimpleConsumer(topic, 0, 0, bootstrap)
assert consumer.consume(timeout_s=30)

def free():
    global producer, admin, consumer, reader
    del producer, admin, consumer, reader
    gc.collect()

in_child(free)
consumer.close()
reader.close()
"""
    run_script(script, skylog_bootstrap, skylog_topic)


def test_a_child_cannot_use_clients_of_its_parent_which_go_on(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
with Producer(bootstrap) as producer:
    for number in range(3):
        producer.send(topic, str(number), partition=0)
admin, consumer, reader = Admin(bootstrap), Consumer(topic, "forks", bootstrap), SimpleConsumer(topic, 0, 0, bootstrap)
assert [message.text() for message in consumer.consume(1, timeout_s=30)] == ["0"]
consumer.commit()

def use():
    calls = (admin.list_topics, consumer.consume, consumer.commit, consumer.rewind, reader.consume)
    for call in (*calls, lambda: consumer.assignment, lambda: list(reader)):
        try:
            call()
        except SkylogError as error:
            assert "before this process was forked" in str(error), error
        else:
            raise AssertionError(call)
    consumer.close()  # the parent stays the member of the group
    reader.close()

in_child(use)
assert admin.describe_topic(topic)
assert [message.text() for message in reader.consume(timeout_s=30)] == ["0", "1", "2"]
rest = []
while len(rest) < 2:
    rest += [message.text() for message in consumer.consume(timeout_s=30)]
assert rest == ["1", "2"]
consumer.close()
reader.close()
"""
    run_script(script, skylog_bootstrap, skylog_topic)


def test_a_child_gets_no_message_of_its_parents_iterations(skylog_bootstrap: str, skylog_topic: str) -> None:
    """Neither those that the parent has buffered, nor by waiting for a thread that only the parent has."""
    script = """
import asyncio
from skylog import AsyncConsumer

with Producer(bootstrap) as producer:
    for number in range(100):
        producer.send(topic, str(number), partition=0)

async def first(consumer):
    async for message in consumer:
        return message.text()

consumer, awaited = Consumer(topic, "iterated", bootstrap), AsyncConsumer(topic, "awaited", bootstrap)
loop = asyncio.new_event_loop()
iteration = iter(consumer)
assert [next(iteration).text() for _ in range(50)] == [str(number) for number in range(50)]
assert loop.run_until_complete(first(awaited)) == "0"

def iterate():
    for call in (lambda: next(iteration), lambda: asyncio.run(first(awaited)), lambda: asyncio.run(awaited.commit())):
        try:
            call()
        except SkylogError as error:
            assert "before this process was forked" in str(error), error
        else:
            raise AssertionError("a message of the parent")
    asyncio.run(awaited.close())
    os._exit(0)  # the end of the interpreter would close the parent's loop

in_child(iterate)
assert next(iteration).text() == "50"
assert loop.run_until_complete(first(awaited)) is not None
consumer.close()
loop.run_until_complete(awaited.close())
"""
    run_script(script, skylog_bootstrap, skylog_topic)


def test_what_was_in_flight_at_the_fork_is_the_parents_concern(skylog_bootstrap: str, skylog_topic: str) -> None:
    script = """
producer = Producer(bootstrap, config={"linger.ms": 60_000})

def send():
    assert producer.queued_count == 0
    assert producer.flush() == 0
    try:
        delivery.result()
    except DeliveryError as error:
        assert "the parent process sends it" in str(error) and error.may_be_stored
    else:
        raise AssertionError("a result of the parent's message")
    producer.send(topic, "child", partition=0)
    producer.flush()

with producer.batch():
    delivery = producer.send(topic, "parent", partition=0)
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        send()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert delivery.done()
"""
    run_script(script, skylog_bootstrap, skylog_topic)
    values = [message.text() for message in consume(skylog_bootstrap, skylog_topic, 2)]
    assert sorted(values) == ["child", "parent"]
