"""What applications write their code against. A change here is a change for all of them."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest

import skylog
from tests.docs_script import docs_script

PUBLIC = {
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncStreamRunner",
    "BrokerUnreachableError",
    "BufferFullError",
    "ClusterAdmin",
    "ConfigError",
    "Consumer",
    "ConsumerGroups",
    "Delivery",
    "DeliveryError",
    "DeserializeError",
    "ErrorPolicy",
    "KafkaError",
    "Message",
    "MessageStream",
    "MessageStreams",
    "OffsetOutOfRangeError",
    "Position",
    "Producer",
    "ProducerFencedError",
    "SerializeError",
    "SimpleConsumer",
    "SkylogError",
    "StreamRunner",
    "TopicNotFoundError",
    "TopicPartition",
    "TransactionAbortedError",
    "TransactionUnknownError",
    "__version__",
    "from_json",
    "from_model",
    "from_text",
    "message_streams",
    "to_json",
    "to_model",
    "to_text",
}

PUBLIC_TESTING = {
    "BrokerCluster",
    "BrokerProcess",
    "BrokerProcessError",
    "DiskFaults",
    "ManualClock",
    "consume",
    "produce",
    "wait_until",
}

PUBLIC_PIPELINE = {
    "ENVELOPE",
    "Cluster",
    "ConcurrentWriterError",
    "Database",
    "Job",
    "JobError",
    "LostFilesError",
    "OffsetsMovedError",
    "Progress",
    "SchemaError",
    "StoreError",
    "Table",
    "TableError",
    "TableSchemaError",
    "TableVersion",
    "Topic",
    "events",
    "job",
    "unparsed",
}

SPARK = {  # what docs/ tells applications to import; __all__ of the packages may have more
    "skylog.spark.session": "make_active register_format start_session",
    "skylog.spark.source": "SkylogSource",
    "skylog.spark.progress": "source_metrics",
    "skylog.spark.workers": "WorkerError check_workers",
    "skylog.pipeline": "Cluster Database Table Topic job",
    "skylog.pipeline.jobs.land": "Land LandSettings land",
    "skylog.pipeline.jobs.visits": "visits visits_job",
    "skylog.pipeline.jobs.rising": "rising rising_job",
    "skylog.pipeline.jobs.rekey": "rekey rekey_job",
    "skylog.pipeline.jobs.materialize": "Envelope as_of changes materialize materialize_into_database materialize_job",
    "skylog.pipeline.jobs.feed": "feed feed_job",
    "skylog.pipeline.jobs.spam": "SpamRules spam spam_job",
    "skylog.pipeline.jobs.monitoring": "RULES AlertRule monitoring monitoring_job read_rules",
    "skylog.pipeline.jobs.security": "LoginWindows security security_job",
    "skylog.pipeline.jobs.audit": "Period balance reports",
    "skylog.pipeline.jobs.search": "DocumentFields SearchIndex documents search_job",
    "skylog.pipeline.jobs.recommendations": "page_views recommend recommendations_job seen_together",
}

SIGNATURES = {
    "Producer": (
        "bootstrap *acks *compression *partitioner *serializer *key_serializer *transactional_id *audit *config"
    ),
    "Producer.send": "topic value key *partition *headers *timestamp_ms *wait",
    "Producer.offer": "topic value key timestamp_ms headers",
    "Producer.batch": "",
    "Producer.transaction": "+consumers",
    "Producer.flush": "timeout_s",
    "Producer.close": "timeout_s",
    "SimpleConsumer": "topic partition offset bootstrap *deserializer *read_committed *config",
    "SimpleConsumer.consume": "max_messages timeout_s",
    "SimpleConsumer.seek_to_time": "timestamp_ms",
    "Consumer": "topics group bootstrap *start *commit *deserializer *audit *read_committed *config",
    "Consumer.consume": "max_messages timeout_s",
    "Consumer.commit": "",
    "Consumer.seek": "topic partition offset",
    "Consumer.seek_to_time": "timestamp_ms",
    "Consumer.rewind": "",
    "Consumer.stop": "",
    "Consumer.close": "",
    "message_streams": "topics group bootstrap *start *commit *deserializer *audit *config",
    "ErrorPolicy": "retries backoff_s max_backoff_s dead_letter_topic permanent",
    "StreamRunner": "topics handle group bootstrap *policy *start *deserializer *audit *config",
    "StreamRunner.run": "",
    "StreamRunner.stop": "",
    "AsyncStreamRunner": "topics handle group bootstrap *policy *start *deserializer *audit *config",
    "AsyncStreamRunner.run": "",
    "AsyncStreamRunner.stop": "",
    "Consumer.keep_alive": "",
    "AsyncProducer.transaction": "+consumers",
    "AsyncProducer": (
        "bootstrap *acks *compression *partitioner *serializer *key_serializer *transactional_id *audit *config"
    ),
    "AsyncProducer.send": "topic value key *partition *headers *timestamp_ms *wait",
    "AsyncProducer.offer": "topic value key timestamp_ms headers",
    "AsyncProducer.batch": "",
    "AsyncProducer.flush": "timeout_s",
    "AsyncProducer.close": "timeout_s",
    "AsyncConsumer": "topics group bootstrap *start *commit *deserializer *audit *read_committed *config",
    "AsyncConsumer.consume": "max_messages timeout_s",
    "AsyncConsumer.commit": "",
    "Admin": "bootstrap client",
    "Admin.create_topic": "name partitions replication_factor configs",
    "ConsumerGroups": "bootstrap",
    "ClusterAdmin": "bootstrap client",
    "ClusterAdmin.describe": "topics",
    "ClusterAdmin.elect_leaders": "partitions *unclean",
    "ClusterAdmin.make_leader": "partition node_id",
    "ClusterAdmin.plan_reassignment": "topics brokers replication_factor",
    "ClusterAdmin.plan_drain": "node_id",
    "ClusterAdmin.reassign": "targets",
    "ClusterAdmin.cancel_reassignments": "partitions",
    "ClusterAdmin.set_throttle": "plan bytes_per_s",
    "ClusterAdmin.clear_throttle": "topics",
    "testing.BrokerProcess": "data_dir settings port *console *options",
    "testing.BrokerProcess.start": "",
    "testing.BrokerProcess.stop": "",
    "testing.BrokerProcess.kill": "",
    "testing.BrokerProcess.pause": "",
    "testing.BrokerProcess.resume": "",
    "testing.BrokerProcess.restart": "",
    "testing.BrokerProcess.close": "",
    "testing.BrokerCluster": "size settings *broker_settings *session_timeout_ms *data_dir",
    "testing.BrokerCluster.address": "node_id",
    "testing.BrokerCluster.start": "+node_ids",
    "testing.BrokerCluster.stop": "+node_ids",
    "testing.BrokerCluster.kill": "+node_ids",
    "testing.BrokerCluster.pause": "node_id",
    "testing.BrokerCluster.resume": "node_id",
    "testing.BrokerCluster.cut_off": "node_id *silently",
    "testing.BrokerCluster.heal": "node_id",
    "testing.BrokerCluster.cut_link": "source target *silently",
    "testing.BrokerCluster.heal_link": "source target",
    "testing.BrokerCluster.partition": "topic partition",
    "testing.BrokerCluster.leader_of": "topic partition",
    "testing.BrokerCluster.wait_for_leader": "topic partition *other_than *seconds",
    "testing.BrokerCluster.wait_until_in_sync": "topic partition *replicas *seconds",
    "testing.BrokerCluster.close": "",
    "testing.produce": "bootstrap topic values *key *partition",
    "testing.consume": "bootstrap topic count *timeout_s",
    "testing.wait_until": "condition what seconds",
    "testing.ManualClock": "now_ms",
    "spark.session.start_session": "name master settings",
    "spark.session.make_active": "spark",
    "spark.session.register_format": "spark",
    "spark.progress.source_metrics": "progress",
    "spark.workers.check_workers": "spark directory",
    "pipeline.job": "reads into *schema *stream *mode *name *options",
    "pipeline.Job.run": ("spark cluster *once *every_s *stop *report *group *max_offsets *options *state"),
    "pipeline.Cluster": "bootstrap options",
    "pipeline.Topic": "name partitions configs",
    "pipeline.Table": "path key partition_by deleted file_bytes",
    "pipeline.Table.read": "spark *version *time_ms *offsets",
    "pipeline.Table.history": "limit",
    "pipeline.Table.offsets": "topics",
    "pipeline.Table.optimize": "partition",
    "pipeline.Table.vacuum": "*keep_ms",
    "pipeline.Database": "url table key add",
    "pipeline.events": "records schema observation",
    "pipeline.unparsed": "records schema",
    "pipeline.jobs.land.land": "spark cluster topics settings *schedule *stop *report *group *max_offsets *options",
    "pipeline.jobs.visits.visits": "events event organisation_fields",
    "pipeline.jobs.visits.visits_job": "topics database table *event *organisation_fields",
    "pipeline.jobs.rising.rising": "views period top smoothing",
    "pipeline.jobs.rising.rising_job": "topics path *cluster *into *period *page *event *top *smoothing",
    "pipeline.jobs.rekey.rekey": "records key schema",
    "pipeline.jobs.materialize.changes": "records schema envelope",
    "pipeline.jobs.materialize.materialize": "changed *is_one_task",
    "pipeline.jobs.materialize.materialize_job": "cluster topic path schema *history *envelope",
    "pipeline.jobs.materialize.materialize_into_database": "topic database table schema *envelope",
    "pipeline.jobs.materialize.as_of": "spark path offsets",
    "pipeline.jobs.audit.balance": "reports period window_ms *now_ms *grace_ms *topics *groups *required",
    "pipeline.jobs.audit.reports": "records pending",
}
HOOKS = docs_script("site_hooks")  # the reference of `make docs`
MARKS: dict[object, str] = {
    inspect.Parameter.KEYWORD_ONLY: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
    inspect.Parameter.VAR_POSITIONAL: "+",
}


def module(name: str) -> ModuleType:
    if name.startswith(("skylog.spark", "skylog.pipeline")):
        pytest.importorskip("pyspark", reason="pip install -e '.[spark]'")
    if name == "skylog.events.django":
        pytest.importorskip("django")
    return importlib.import_module(name)


def test_the_names_are_these_and_all_of_them_are_there() -> None:
    assert set(skylog.__all__) == PUBLIC
    assert all(getattr(skylog, name) is not None for name in PUBLIC)
    with pytest.raises(AttributeError):
        skylog.NoSuchThing  # noqa: B018


def test_the_names_are_listed_before_the_clients_are_loaded() -> None:
    assert {name for name in dir(skylog) if not name.startswith("__") or name in PUBLIC} == PUBLIC


CLASSES = sorted(name for name in PUBLIC if inspect.isclass(getattr(skylog, name)))
DOCUMENTED = [
    *(f"skylog.{name}" for name in CLASSES),
    *(f"skylog.testing.{name}" for name in sorted(PUBLIC_TESTING) if name[0].isupper()),
    *(f"skylog.events.{name}" for name in ("EventCollector", "EventLog", "EventProducer", "RequestScope")),
]


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_method_has_a_docstring(name: str) -> None:
    package, _, short = name.rpartition(".")
    bare = [
        each
        for each, value in vars(getattr(module(package), short)).items()
        if not each.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
        if not inspect.getdoc(value)
    ]
    assert bare == []


DYNAMIC = {"Message.json", "from_json"}  # JSON is of any type
ANY_CONSUMER = {"AsyncProducer.transaction", "Producer.transaction"}  # a transaction takes consumers of any value


def test_no_public_signature_has_any() -> None:
    """A type checker finds a misspelled argument, or one of the wrong type, only if nothing accepts everything."""
    functions = {name: getattr(skylog, name) for name in PUBLIC if inspect.isfunction(getattr(skylog, name))}
    classes = {name: getattr(skylog, name) for name in CLASSES} | {"EventLog": module("skylog.events").EventLog}
    for name, kind in classes.items():
        for each, value in vars(kind).items():
            found = value.fget if isinstance(value, property) else inspect.unwrap(getattr(value, "__func__", value))
            if (each == "__init__" or not each.startswith("_")) and inspect.isfunction(found):
                functions[f"{name}.{each}"] = found
    assert len(functions) > 100
    loose = {name for name, found in functions.items() if "Any" in re.findall(r"\w+", str(found.__annotations__))}
    assert loose == DYNAMIC | ANY_CONSUMER


def test_the_names_of_the_test_kit_are_these_and_all_of_them_are_there() -> None:
    testing = module("skylog.testing")
    assert set(testing.__all__) == PUBLIC_TESTING
    assert all(getattr(testing, name) is not None for name in PUBLIC_TESTING)
    with pytest.raises(AttributeError):
        testing.NoSuchThing  # noqa: B018


def test_the_names_of_the_pipeline_package_are_these_and_all_of_them_are_there() -> None:
    pipeline = module("skylog.pipeline")
    assert set(pipeline.__all__) == PUBLIC_PIPELINE
    assert all(getattr(pipeline, name) is not None for name in PUBLIC_PIPELINE)
    with pytest.raises(AttributeError):
        pipeline.NoSuchThing  # noqa: B018


@pytest.mark.parametrize("name", SPARK)
def test_the_names_of_the_pipeline_are_there(name: str) -> None:
    found = module(name)
    names = set(SPARK[name].split())
    assert names - set(dir(found)) == set()
    assert names - set(getattr(found, "__all__", names)) == set()


@pytest.mark.parametrize("name", SIGNATURES)
def test_the_parameters_are_these(name: str) -> None:
    found: Any = skylog
    path = f"skylog.{name}".split(".")
    for end, part in enumerate(path[1:], start=2):
        found = module(".".join(path[:end])) if part.islower() and end < len(path) else getattr(found, part)
    parameters = [parameter for parameter in inspect.signature(found).parameters.values() if parameter.name != "self"]
    assert " ".join(MARKS.get(each.kind, "") + each.name for each in parameters) == SIGNATURES[name]


def test_the_reference_has_every_public_module() -> None:
    pages = HOOKS.API
    names = ("client", "events", "audit", "spark", "pipeline", "testing")
    assert set(pages) == {"skylog", *(f"skylog.{name}" for name in names)}
    assert set(SPARK) == {*pages["skylog.spark"], *pages["skylog.pipeline"]}


@pytest.mark.parametrize("name", [name for modules in HOOKS.API.values() for name in modules])
def test_everything_public_is_documented(name: str) -> None:
    """Modules, classes and functions have docstrings, and the reference names what is there."""
    found = module(name)
    assert found.__doc__
    names = HOOKS.public_names(name)
    assert names
    values = {each: getattr(found, each) for each in names}
    code = {each: value for each, value in values.items() if inspect.isclass(value) or inspect.isroutine(value)}
    assert [each for each, value in code.items() if not value.__doc__] == []


def test_importing_skylog_loads_no_client() -> None:
    script = "import sys, skylog; print('confluent_kafka' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
