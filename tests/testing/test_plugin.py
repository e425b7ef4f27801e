"""The plugin as another project uses it: a separate pytest run with only skylog installed."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

CLIENTS = """
import asyncio

def test_confluent_kafka(skylog_broker, skylog_topic):
    from confluent_kafka import Consumer, Producer
    producer = Producer({"bootstrap.servers": skylog_broker.bootstrap})
    producer.produce(skylog_topic, b"hello", key=b"k")
    assert producer.flush(10) == 0
    consumer = Consumer(
        {"bootstrap.servers": skylog_broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([skylog_topic])
    message = consumer.poll(20)
    assert (message.key(), message.value()) == (b"k", b"hello")
    consumer.close()

def test_kafka_python(skylog_broker, skylog_topic):
    from kafka import KafkaConsumer, KafkaProducer
    producer = KafkaProducer(bootstrap_servers=skylog_broker.bootstrap)
    producer.send(skylog_topic, b"hello", key=b"k").get(10)
    producer.close()
    consumer = KafkaConsumer(
        skylog_topic, bootstrap_servers=skylog_broker.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=20000
    )
    message = next(consumer)
    assert (message.key, message.value) == (b"k", b"hello")
    consumer.close()

def test_aiokafka(skylog_bootstrap, skylog_topic):
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    async def talk():
        async with AIOKafkaProducer(bootstrap_servers=skylog_bootstrap) as producer:
            await producer.send_and_wait(skylog_topic, b"hello", key=b"k")
        async with AIOKafkaConsumer(
            skylog_topic, bootstrap_servers=skylog_bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            return await asyncio.wait_for(consumer.getone(), 20)
    message = asyncio.run(talk())
    assert (message.key, message.value) == (b"k", b"hello")
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in a separate process, with a timeout."""
    return pytester.runpytest_subprocess(*arguments, timeout=120)


def test_the_clients_of_other_projects_talk_to_the_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(CLIENTS)
    run(pytester).assert_outcomes(passed=3)


def test_a_topic_is_fresh_and_deleted_after_the_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from skylog.testing import consume, produce
        seen = []

        def names(admin):
            return {topic.name for topic in admin.list_topics() if not topic.is_internal}

        @pytest.mark.parametrize("what", ["a", "b/ä ?", "c" * 300])
        def test_fresh(skylog_admin, skylog_bootstrap, skylog_topic, what):
            assert names(skylog_admin) == {skylog_topic}
            assert not consume(skylog_bootstrap, skylog_topic)
            produce(skylog_bootstrap, skylog_topic, ["x"])
            seen.append(skylog_topic)

        def test_deleted_by_itself(skylog_admin, skylog_topic):
            skylog_admin.delete_topics([skylog_topic])

        def test_after_all(skylog_admin):
            assert len(set(seen)) == 3
            assert names(skylog_admin) == set()
        """
    )
    run(pytester).assert_outcomes(passed=5)


def test_one_broker_serves_all_tests_of_a_run_and_ends_with_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_one="def test_it(skylog_broker): open('one', 'w').write(f'{skylog_broker.pid} {skylog_broker.data_dir}')",
        test_two="def test_it(skylog_broker): open('two', 'w').write(f'{skylog_broker.pid} {skylog_broker.data_dir}')",
    )
    run(pytester).assert_outcomes(passed=2)
    one, two = ((pytester.path / name).read_text() for name in ("one", "two"))
    assert one == two
    pid, data_dir = one.split()
    assert not (pytester.path / "/proc" / pid).exists()
    assert not (pytester.path / data_dir).exists()


def test_each_worker_of_xdist_has_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os

        def test_it(skylog_bootstrap, skylog_topic):
            open(os.environ["PYTEST_XDIST_WORKER"], "w").write(skylog_bootstrap)
        """
    )
    run(pytester, "--dist", "each", "--tx", "2*popen//chdir=.").assert_outcomes(passed=2)
    assert len({path.read_text() for path in pytester.path.glob("gw*")}) == 2


def test_settings_come_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nskylog_settings =\n    num.partitions=3\n    log.retention.ms = 5000\n")
    pytester.makepyfile(
        """
        def test_it(skylog_admin, skylog_topic):
            assert len(skylog_admin.describe_topic(skylog_topic).partitions) == 3
            configs = {each.name: each.value for each in skylog_admin.describe_configs(skylog_topic)}
            assert configs["retention.ms"] == "5000"
        """
    )
    run(pytester).assert_outcomes(passed=1)


def test_a_conftest_may_compute_the_settings(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def skylog_settings():
            return {"num.partitions": "2"}
        """
    )
    pytester.makepyfile(
        """
        def test_it(skylog_admin, skylog_topic):
            assert len(skylog_admin.describe_topic(skylog_topic).partitions) == 2
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("line", "expected"), [("num.partitions", "*expected KEY=VALUE*"), ("num.partitionz=1", "*num.partitions*")]
)
def test_a_wrong_setting_is_named(pytester: pytest.Pytester, line: str, expected: str) -> None:
    pytester.makeini(f"[pytest]\nskylog_settings = {line}\n")
    pytester.makepyfile("def test_it(skylog_broker): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([expected])


def test_loading_the_plugin_costs_next_to_nothing() -> None:
    command = [sys.executable, "-X", "importtime", "-c", "import pytest; import skylog.testing.plugin"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr.splitlines()
    modules = {line.rpartition("|")[2].strip() for line in lines}
    assert {name for name in modules if name.split(".")[0] in ("skylog", "confluent_kafka", "uvloop", "rich")} == {
        "skylog",
        "skylog.testing",
        "skylog.testing.plugin",
    }
