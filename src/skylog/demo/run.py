"""A run of the demo from start to end: starts the parts, monitors them, stops them in order, and audits the counts."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from skylog.audit import AUDIT_TOPIC, ProducerAudit
from skylog.client import Admin, Producer
from skylog.clock import SystemClock
from skylog.demo.access import NEWSFEED_USER, PIPELINE_USER, WEBSITE_USER
from skylog.demo.articles import Publisher
from skylog.demo.community import Community
from skylog.demo.failover import Failover
from skylog.demo.figures import Figures, Observer
from skylog.demo.final_audit import is_balanced, print_balances, wait_for_balance
from skylog.demo.layout import (
    APPLICATION,
    EVENTS,
    EVENTS_PARTITIONS,
    FEED,
    NEWSFEED,
    PAGES_TOPIC,
    RISING,
    USERS_TOPIC,
    Layout,
)
from skylog.demo.newsfeed import Newsfeed
from skylog.demo.pipeline import Pipeline
from skylog.demo.servers import DemoCluster, DemoServers, make_access, make_servers
from skylog.demo.stop_condition import StopCondition
from skylog.demo.summary import Summary, open_summary
from skylog.demo.traffic import Traffic
from skylog.demo.website import Website
from skylog.errors import SkylogError
from skylog.events import EventLog
from skylog.outage import Outage
from skylog.search_index import INDEX_VARIABLE
from skylog.terminal import note

POLL_S: Final = 1.0
FLUSH_TIMEOUT_S: Final = 30.0
STALL_TIMEOUT_S: Final = 180.0
STOP_TIMEOUT_S: Final = 60.0
AUDIT_TIMEOUT_S: Final = 30.0
OUTAGE_S: Final = 60.0  # how long the leaders of a cluster may be away; a single broker may not
TOPICS: Final[Sequence[tuple[str, int, Mapping[str, str]]]] = (
    (AUDIT_TOPIC, 1, {}),
    (EVENTS, EVENTS_PARTITIONS, {}),
    (RISING, 1, {"cleanup.policy": "compact"}),
    (FEED, EVENTS_PARTITIONS, {}),
    (PAGES_TOPIC, 1, {"cleanup.policy": "compact"}),
    (USERS_TOPIC, 1, {"cleanup.policy": "compact"}),
)


class DemoRun:
    """Call `run` once, in the main thread. `abort` kills every process, at any point of the run.

    With several brokers, one is killed `kill_after_s` after the start.
    """

    def __init__(
        self, layout: Layout, brokers: int, port: int, rate: float, kill_after_s: float, *, is_secure: bool = False
    ) -> None:
        self.layout = layout
        self._rate = rate
        self._since_ms = int(time.time() * 1000)
        self._failover = Failover(kill_after_s)
        self.access = make_access(layout, brokers, is_secure=is_secure)
        self._servers = make_servers(layout, brokers, port, self._failover.note, self.access)
        self._patience_s = OUTAGE_S if brokers > 1 else 0.0
        self._pipeline: Pipeline | None = None

    @property
    def bootstrap(self) -> str:
        return self._servers.bootstrap

    @property
    def console_url(self) -> str:
        return self._servers.console_url

    def start_servers(self) -> None:
        """Start the brokers and create the topics. Raises SkylogError if a port or the data directory is in use."""
        os.environ[INDEX_VARIABLE] = str(self.layout.search.absolute())  # for the console, which the servers start
        self.access.prepare()
        self._servers.start()
        if isinstance(self._servers, DemoCluster):
            self._failover.start(self._servers, self.access.settings())
        self.access.grant(self.bootstrap)
        admin = Admin(self.access.connection(self.bootstrap))
        # The broker starts to count stored messages when the audit topic exists, so create that first. All are created
        # now: while a broker is away, there may be too few for a new topic.
        known = {topic.name for topic in admin.list_topics()}
        for topic, partitions, configs in TOPICS:
            if topic not in known:
                admin.create_topic(topic, partitions, configs=configs)

    def run(self, stop_condition: StopCondition) -> bool:
        """Run until `stop_condition` holds. Returns whether the counts balance. Raises SkylogError if a part fails."""
        access, login = self.access, self.access.settings(WEBSITE_USER)
        pipeline = self._pipeline = Pipeline(self.bootstrap, self.layout, access.client_file(PIPELINE_USER))
        newsfeed = Newsfeed(self.bootstrap, self._patience_s, access.settings(NEWSFEED_USER))
        audit = ProducerAudit(APPLICATION, journal_dir=self.layout.journals)
        producer = Producer(self.bootstrap, audit=audit, config=login)
        events = EventLog(producer, EVENTS, APPLICATION, flush_timeout_s=FLUSH_TIMEOUT_S)
        website, contents = Website(Random()), Producer(self.bootstrap, config=login)
        publisher = Publisher(contents)
        publisher.publish(website.users)
        traffic = Traffic([website, Community(Random())], events, self._rate)
        observer = Observer(self.bootstrap, self.layout, access.settings())
        monitor = _Monitor(observer, self._servers, pipeline, newsfeed, self._failover, self._patience_s)
        newsfeed.start()
        traffic.start()
        stop_condition.begin()
        try:
            with open_summary() as summary:
                if self._patience_s:
                    self._failover.begin(summary.show_cluster)
                monitor.run_until(stop_condition, summary)
                traffic.stop()
                events.close()
                producer.close(FLUSH_TIMEOUT_S)
                publisher.revise()
                contents.close(FLUSH_TIMEOUT_S)
                monitor.wait_until_caught_up(summary)
        except SkylogError:
            traffic.stop()
            contents.close(0)
            producer.close(0)  # the run has failed: do not wait for unsent events
            raise
        monitor.close()
        stats = events.stats()
        if stats.fired > stats.delivered:
            note(f"{stats.fired - stats.delivered:,} events could not be sent and are not counted")
        pipeline.stop(STOP_TIMEOUT_S)
        if not newsfeed.stop(STOP_TIMEOUT_S):
            raise SkylogError(f"group {NEWSFEED} did not stop within {STOP_TIMEOUT_S:.0f} s")
        balances = wait_for_balance(
            access.connection(self.bootstrap), EVENTS, NEWSFEED, self._since_ms, AUDIT_TIMEOUT_S
        )
        self._failover.stop()
        self._servers.close()
        print_balances(EVENTS, balances)
        return is_balanced(balances)

    def close(self) -> None:
        """Stop everything that still runs."""
        if self._pipeline is not None:
            self._pipeline.kill()
        self._failover.stop()
        self._servers.close()

    def abort(self) -> None:
        """Kill everything, as a crash would. The log and the jobs' results survive that."""
        if self._pipeline is not None:
            self._pipeline.kill()
        self._servers.kill()


class _Monitor:
    """Polls all parts, shows their figures, and raises the first error of any of them.

    A cluster may fail to answer for `patience_s`: its leaders are away.
    """

    def __init__(
        self,
        observer: Observer,
        servers: DemoServers,
        pipeline: Pipeline,
        newsfeed: Newsfeed,
        failover: Failover,
        patience_s: float,
    ) -> None:
        self._observer = observer
        self._servers = servers
        self._pipeline = pipeline
        self._newsfeed = newsfeed
        self._failover = failover
        self._outage = Outage(SystemClock(), patience_s)
        self._figures: Figures | None = None

    def run_until(self, stop_condition: StopCondition, summary: Summary) -> None:
        while True:
            self._poll(summary, "running" if self._pipeline.is_ready else "Spark is starting")
            if stop_condition.wait(POLL_S):
                return

    def wait_until_caught_up(self, summary: Summary) -> None:
        """Wait until no group lags and no broker is away, or no group has made progress for a while.

        The audit then shows what is missing.
        """
        least, deadline = math.inf, time.monotonic() + STALL_TIMEOUT_S
        while True:
            behind = self._poll(summary, "no more events; waiting for readers to catch up").behind
            if not behind and self._failover.is_over and self._outage.is_over:
                return
            left = sum(behind.values())
            if left < least:
                least, deadline = left, time.monotonic() + STALL_TIMEOUT_S
            if time.monotonic() >= deadline:
                late = ", ".join(behind) or "the cluster"
                note(f"no progress for {STALL_TIMEOUT_S:.0f} s: {late}; see {self._pipeline.log_path}")
                return
            time.sleep(POLL_S)

    def close(self) -> None:
        self._observer.close()

    def _poll(self, summary: Summary, phase: str) -> Figures:
        self._check()
        try:
            self._figures = figures = self._observer.collect()
            self._outage.ended()
        except SkylogError:
            self._check()  # if the broker has exited, that is the cause: report it instead
            if self._outage.failed() or self._figures is None:
                raise
            figures, phase = self._figures, f"{phase}; some leaders are away"
        summary.show(figures, phase, list(self._newsfeed.latest))
        return figures

    def _check(self) -> None:
        self._servers.check()
        self._pipeline.check()
        if self._newsfeed.error is not None:
            raise SkylogError(f"group {NEWSFEED} failed: {self._newsfeed.error}") from self._newsfeed.error
