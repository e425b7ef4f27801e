"""Every job on a Spark cluster. Executors share no disk with the driver; tables are in an S3-compatible store.

The driver and its working directory are in pytest's directory, which workers do not see. The state of streams is the
one exception: it needs a directory that all of them have mounted, and is where no other file is.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from skylog import Admin, Producer
from skylog.audit import AUDIT_TOPIC, Count, Report, Tier
from skylog.pipeline import Cluster, Table
from skylog.search_index import search
from skylog.testing import BrokerProcess, consume, produce
from tests.pipeline.delta.conftest import bucket, s3
from tests.pipeline.delta.store import VARIABLES
from tests.pipeline.delta_readers import query
from tests.pipeline.jobs.logged_events import NOON_MS, Logged, send
from tests.pipeline.standalone.cluster import IN_NAMESPACE, StandaloneCluster
from tests.proof import in_proof
from tests.spark.conftest import Commands

__all__ = ["bucket", "s3"]

PAGES = ["/", "/a", "/b"]
VIEWS: list[Any] = [
    {"id": str(number), "event": "page.view", "attributes": {"page": PAGES[number % 3], "org_id": "acme"}}
    for number in range(60)
]
MOUNTED = Path("/dev/shm")
MODULE = """
import os

from pyspark.sql import functions as F

from skylog.pipeline import Database, Table, Topic, job

@F.udf("string")
def directory(page):
    return os.getcwd()

@F.udf("boolean")
def sees_the_driver(page):
    return os.path.exists(DRIVER)

@job(reads=TOPIC, into=Table(f"{BUCKET}/own"))
def own(events):
    page = events.attributes["page"]
    return events.select(page.alias("page"), directory(page).alias("directory"), sees_the_driver(page).alias("sees"))

@job(reads=TOPIC, into=Table(f"{BUCKET}/last", key=("page",)))
def last(events):
    return events.groupBy(events.attributes["page"].alias("page")).agg(F.max(F.col("id").cast("int")).alias("id"))

@job(reads=TOPIC, into=Database("sqlite:///counts.db", "counts", key=("page",), add=("views",)))
def counts(events):
    return events.groupBy(events.attributes["page"].alias("page")).agg(F.count("*").alias("views"))

@job(reads=TOPIC, into=Topic(TOPIC + "-copy"))
def copy(events):
    return events.selectExpr("id AS key", "attributes['page'] AS value")
"""

pytestmark = pytest.mark.timeout(900)  # the first test waits for a master, workers, a driver and executors


class Site:
    """A topic of page views and a driver, which runs commands on the cluster."""

    def __init__(self, commands: Commands, bootstrap: str, bucket: str, directory: Path) -> None:
        self.commands, self.bootstrap, self.bucket, self.directory = commands, bootstrap, bucket, directory
        self.topic = f"views-{uuid.uuid4().hex[:8]}"
        Admin(bootstrap).create_topic(self.topic, partitions=2)
        for partition in range(2):
            produce(bootstrap, self.topic, VIEWS[partition::2], partition=partition)

    def run(self, *arguments: object) -> str:
        command = ("pipeline", "run", *arguments, "--once", "--bootstrap", self.bootstrap)
        return self.commands.run(*command, directory=self.directory)

    def run_own(self, name: str, *arguments: object) -> None:
        """Run a job of the user's module, which only the driver has."""
        module = f"shop_{uuid.uuid4().hex[:8]}"
        names = f"TOPIC, BUCKET, DRIVER = {self.topic!r}, {self.bucket!r}, {str(self.directory)!r}\n"
        (self.directory / f"{module}.py").write_text(names + MODULE)
        self.run(f"{module}:{name}", *arguments)

    def query(self, table: str, sql: str) -> list[Any]:
        path = f"{self.bucket}/{table}"
        return query(path, sql, storage_options=dict(Table(path).storage.options))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory, s3: str) -> Iterator[Commands]:
    if subprocess.run([*IN_NAMESPACE, "true"], capture_output=True).returncode:
        pytest.skip("mount namespaces cannot be made here")
    hidden = tmp_path_factory.getbasetemp()
    variables = {**VARIABLES, "AWS_ENDPOINT_URL": s3, "TMPDIR": str(tmp_path_factory.mktemp("driver-tmp"))}
    log = tmp_path_factory.mktemp("driver") / "log"
    with (
        StandaloneCluster(tmp_path_factory.mktemp("cluster"), hidden) as cluster,
        log.open("wb") as out,
        closing(Commands(out, cluster.options, variables)) as commands,
    ):
        yield commands


@pytest.fixture
def site(driver: Commands, skylog_broker: BrokerProcess, bucket: str, tmp_path: Path) -> Site:
    return Site(driver, skylog_broker.bootstrap, bucket, tmp_path)


@pytest.fixture
def mounted() -> Iterator[Path]:
    """A directory that the driver and all executors have."""
    if not MOUNTED.is_dir() or not os.access(MOUNTED, os.W_OK):
        pytest.skip(f"there is no {MOUNTED}")
    found = Path(tempfile.mkdtemp(prefix="skylog-", dir=MOUNTED))
    yield found
    shutil.rmtree(found)


def test_events_land_and_a_job_of_the_user_runs(site: Site) -> None:
    site.run("land", site.topic, "--warehouse", f"{site.bucket}/lake")
    counted = "count(*), count(DISTINCT id), count(DISTINCT (_partition, _offset))"
    assert site.query(f"lake/{site.topic}", f"SELECT {counted} FROM t") == [(len(VIEWS),) * 3]
    site.run_own("own")
    rows = site.query("own", "SELECT page, directory, sees FROM t")
    assert sorted(page for page, _, _ in rows) == sorted(view["attributes"]["page"] for view in VIEWS)
    assert {sees for _, _, sees in rows} == {False}
    assert all("/worker-" in directory for _, directory, _ in rows)
    names = {path.name for path in site.directory.iterdir()} - {"__pycache__"}
    assert [name.partition("_")[0] for name in names] == ["shop"]


@in_proof
def test_the_other_sinks_of_a_user(site: Site, mounted: Path) -> None:
    site.run_own("last")
    assert site.query("last", "SELECT * FROM t ORDER BY page") == [("/", 57), ("/a", 58), ("/b", 59)]
    site.run_own("counts")
    with closing(sqlite3.connect(site.directory / "counts.db")) as connection:
        rows = connection.execute("SELECT page, views FROM counts ORDER BY page").fetchall()
    assert rows == [(page, 20) for page in PAGES]
    site.run_own("copy", "--state", mounted)
    found = {(message.key or b"").decode(): message.value for message in consume(site.bootstrap, f"{site.topic}-copy")}
    assert found == {view["id"]: view["attributes"]["page"].encode() for view in VIEWS}


@in_proof
def test_a_job_into_a_topic_without_a_mounted_directory_sends_nothing_and_says_so(site: Site) -> None:
    with pytest.raises(AssertionError, match="set the option stagingLocation to a directory that the driver shares"):
        site.run_own("copy")
    assert consume(site.bootstrap, f"{site.topic}-copy") == []


@in_proof
def test_visits_are_counted(site: Site) -> None:
    site.run("visits", site.topic)
    with closing(sqlite3.connect(site.directory / "visits.db")) as connection:
        assert connection.execute("SELECT organisation, visits FROM visits").fetchall() == [("acme", len(VIEWS))]


@in_proof
def test_rising_pages_are_ranked(site: Site) -> None:
    into = f"{site.topic}-rising"
    site.run("rising", site.topic, "--table", f"{site.bucket}/rising", "--into", into, "--page", "attributes.page")
    assert sorted(site.query("rising", "SELECT page, views FROM t")) == [(page, 20) for page in PAGES]
    assert sorted((message.key or b"").decode() for message in consume(site.bootstrap, into)) == PAGES


@in_proof
def test_a_topic_is_rekeyed(site: Site, mounted: Path) -> None:
    into = f"{site.topic}-by-page"
    site.run("rekey", site.topic, "--into", into, "--key", "attributes.page", "--state", mounted)
    keys = [(message.key or b"").decode() for message in consume(site.bootstrap, into)]
    assert sorted(keys) == sorted(view["attributes"]["page"] for view in VIEWS)


@in_proof
def test_a_changelog_is_materialized(site: Site) -> None:
    changelog = f"{site.topic}-users"
    Admin(site.bootstrap).create_topic(changelog, partitions=1)
    command = ("materialize", changelog, "--table", f"{site.bucket}/users", "--schema", "name STRING")
    for name in ("old", "new"):
        for key in ("a", "b"):
            produce(site.bootstrap, changelog, [{"name": f"{name} {key}"}], key=key)
        site.run(*command)
    produce(site.bootstrap, changelog, [None], key="a")
    site.run(*command)
    assert site.query("users", "SELECT decode(_key), name FROM t") == [("b", "new b")]
    assert site.query("users__changes", "SELECT count(*) FROM t") == [(5,)]


@in_proof
def test_the_audit_compares(site: Site) -> None:
    counts = (Count(0, 60_000, 7, 700, 0),)
    reports = [
        Report(Tier.PRODUCED, "shop", site.topic, counts, 60_000),
        Report(Tier.STORED, "broker-1", site.topic, counts, 60_000, 0, 0, 7),
    ]
    Cluster(site.bootstrap).ensure_topic(AUDIT_TOPIC, 1)
    produce(site.bootstrap, AUDIT_TOPIC, [report.encode() for report in reports])
    said = site.run("audit", "--topic", site.topic, "--into", f"{site.bucket}/balance")
    assert "balanced: 1 window" in said
    assert site.query("balance", "SELECT tier, messages FROM t ORDER BY tier") == [("produced", 7), ("stored", 7)]


@in_proof
def test_posts_are_delivered_and_comments_flagged(site: Site, mounted: Path) -> None:
    events = [
        Logged(0, "user.follow", "bob", {"author": "ada"}),
        Logged(1, "post.create", "ada", {"id": "p1", "title": "A post"}),
        Logged(2, "comment.create", "bob", {"id": "c1", "body": "free money"}),
        Logged(3, "comment.create", "bob", {"id": "c2", "body": "hello"}),
    ]
    send(site.bootstrap, site.topic, events)
    for name, expected in (("feed", [("bob", "p1")]), ("spam", [("c1", None)])):
        into = f"{site.topic}-{name}"
        site.run(name, site.topic, "--into", into, "--state", mounted / name)
        found = [((each.key or b"").decode(), each.json().get("post")) for each in consume(site.bootstrap, into)]
        assert found == expected


@in_proof
def test_failed_logins_are_flagged(site: Site, mounted: Path) -> None:
    failures = (Logged(n, "user.login_failed", None, {"name": f"u{n}", "address": "10.0.0.1"}) for n in range(12))
    send(site.bootstrap, site.topic, failures)
    site.run("security", site.topic, "--window", "1m", "--slide", "1m", "--late", "2h", "--state", mounted)
    with closing(sqlite3.connect(site.directory / "security.db")) as connection:
        rows = connection.execute("SELECT kind, who, failures FROM suspicious_logins").fetchall()
    assert rows == [("address", "10.0.0.1", 12)]


@in_proof
def test_metrics_are_monitored(site: Site, mounted: Path) -> None:
    metrics, into = f"{site.topic}-metrics", f"{site.topic}-alerts"
    Admin(site.bootstrap).create_topic(metrics, partitions=1)
    now_ms = time.time_ns() // 1_000_000  # an older sample would be silent already
    sample = {"node_id": 1, "time_ms": now_ms, "name": "skylog_offline_logs", "labels": {}, "value": 1.0}
    produce(site.bootstrap, metrics, [sample])
    site.run("monitoring", metrics, "--into", into, "--state", mounted)
    assert [(each.json()["name"], each.json()["state"]) for each in consume(site.bootstrap, into)] == [
        ("log is offline", "raised")
    ]


@in_proof
def test_documents_are_indexed(site: Site) -> None:
    pages = f"{site.topic}-pages"
    Admin(site.bootstrap).create_topic(pages, partitions=2)
    for key, title in (("/comet", "A comet"), ("/mill", "The mill"), ("/gone", "A comet, too")):
        produce(site.bootstrap, pages, [{"title": title, "text": "Text."}], key=key)
    produce(site.bootstrap, pages, [None], key="/gone")
    site.run("search", pages)
    assert [each.id for each in search(site.directory / "search.db", "comet").hits] == ["/comet"]


@in_proof
def test_pages_that_are_seen_together_are_recommended(site: Site) -> None:
    views = [Logged(n, "page.view", f"u{n // 2}", {"page": ("/a", "/b")[n % 2]}) for n in range(6)]
    send(site.bootstrap, site.topic, views, partitions=1)
    visitor = ("--visitor", "user.id")
    site.run("recommendations", site.topic, "--table", f"{site.bucket}/recommended", *visitor)
    rows = site.query("recommended", "SELECT page, visits, recommended[1].page FROM t WHERE len(recommended) > 0")
    assert sorted(rows) == [("/a", 3, "/b"), ("/b", 3, "/a")]


@in_proof
def test_digests_are_written(site: Site, mounted: Path) -> None:
    pages, users, into = (f"{site.topic}-{name}" for name in ("pages", "users", "digests"))
    for each in (pages, users):
        Admin(site.bootstrap).create_topic(each, partitions=1)
    produce(site.bootstrap, users, [{"address": "ada@home.example", "sections": ["*"]}], key="ada")
    with Producer(site.bootstrap) as producer:
        for day in (0, 2):  # the second page shows that the day of the first is over
            value = {"title": f"Page {day}", "section": "news", "text": "Text."}
            producer.send(pages, value, f"/{day}", timestamp_ms=NOON_MS + day * 86_400_000).result(20)
    site.run("newsletters", pages, "--users", users, "--into", into, "--state", mounted)
    (digest,) = consume(site.bootstrap, into)
    assert [each["title"] for each in digest.json()["pages"]] == ["Page 0"]
