"""The demonstration from its beginning to its end: starts everything, watches it, ends it in order, and judges it."""

from __future__ import annotations

import math
import time
from random import Random
from typing import Final

from skylog.audit import AUDIT_TOPIC, ProducerAudit
from skylog.cli.demo.ending import Ending
from skylog.cli.demo.figures import Figures, Observer
from skylog.cli.demo.newsfeed import Newsfeed
from skylog.cli.demo.pipeline import Pipeline
from skylog.cli.demo.places import APPLICATION, EVENTS, EVENTS_PARTITIONS, NEWSFEED, Places
from skylog.cli.demo.settlement import is_balanced, print_settlement, settle
from skylog.cli.demo.summary import Summary, open_summary
from skylog.cli.demo.traffic import Traffic
from skylog.cli.demo.website import Website
from skylog.cli.output import note
from skylog.client import Admin, Producer
from skylog.errors import SkylogError
from skylog.events import EventLog
from skylog.testing import BrokerProcess, BrokerProcessError

LOOK_EVERY_S: Final = 1.0
FLUSH_S: Final = 10.0
CATCH_UP_S: Final = 180.0
STOP_S: Final = 60.0
SETTLE_S: Final = 20.0


class Story:
    """`run` it once, in the main thread; `abort` leaves no process behind, whatever was going on."""

    def __init__(self, places: Places, port: int, rate: float) -> None:
        self.places = places
        self._rate = rate
        self._since_ms = int(time.time() * 1000)
        self._broker = BrokerProcess(places.broker, port=port, console=True)
        self._pipeline: Pipeline | None = None

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap

    @property
    def console_url(self) -> str:
        return self._broker.console_url

    def start_broker(self) -> None:
        """Raises SkylogError that says what to do if the port is taken, or the data directory is in use."""
        try:
            self._broker.start()
        except BrokerProcessError:
            said = self._broker.stderr().strip().rpartition("\n")[2].removeprefix("error: ")
            if "cannot listen" in said:
                said = f"port {self._broker.port} is taken; stop who listens there, or let --port 0 find a free one"
            raise SkylogError(f"the broker did not start: {said}") from None
        admin = Admin(self.bootstrap)
        # The broker counts what it stores from when the audit's topic is there, so that comes first.
        known = {topic.name for topic in admin.list_topics()}
        for topic, partitions in ((AUDIT_TOPIC, 1), (EVENTS, EVENTS_PARTITIONS)):
            if topic not in known:
                admin.create_topic(topic, partitions)

    def run(self, ending: Ending) -> bool:
        """Until the end comes; whether the books balance. Raises SkylogError if a part of it fails."""
        pipeline = self._pipeline = Pipeline(self.bootstrap, self.places)
        newsfeed = Newsfeed(self.bootstrap)
        audit = ProducerAudit(APPLICATION, journal_dir=self.places.journals)
        producer = Producer(self.bootstrap, audit=audit)
        events = EventLog(producer, EVENTS, APPLICATION, flush_timeout_s=FLUSH_S)
        traffic = Traffic(Website(Random()), events, self._rate)
        watch = _Watch(Observer(self.bootstrap, self.places), self._broker, pipeline, newsfeed)
        newsfeed.start()
        traffic.start()
        ending.begin()
        try:
            with open_summary() as summary:
                watch.until_the_end(ending, summary)
                traffic.stop()
                events.close()
                producer.close(FLUSH_S)
                watch.until_caught_up(summary)
        except SkylogError:
            traffic.stop()
            producer.close(0)  # what is not sent by now is not worth waiting for
            raise
        watch.close()
        stats = events.stats()
        if stats.fired > stats.delivered:
            note(f"{stats.fired - stats.delivered:,} events could not be sent, and are in no count")
        pipeline.stop(STOP_S)
        if not newsfeed.stop(STOP_S):
            raise SkylogError(f"group {NEWSFEED} did not end in {STOP_S:.0f} s")
        balances = settle(self.bootstrap, EVENTS, NEWSFEED, self._since_ms, SETTLE_S)
        self._broker.close()
        print_settlement(EVENTS, balances)
        return is_balanced(balances)

    def close(self) -> None:
        """End what still runs."""
        if self._pipeline is not None:
            self._pipeline.kill()
        self._broker.close()

    def abort(self) -> None:
        """End everything at once, as a crash would: the log and the results are made for that."""
        if self._pipeline is not None:
            self._pipeline.kill()
        if self._broker.is_running:
            self._broker.kill()


class _Watch:
    """Looks at everything that runs, shows it, and raises the first error of any of it."""

    def __init__(self, observer: Observer, broker: BrokerProcess, pipeline: Pipeline, newsfeed: Newsfeed) -> None:
        self._observer = observer
        self._broker = broker
        self._pipeline = pipeline
        self._newsfeed = newsfeed

    def until_the_end(self, ending: Ending, summary: Summary) -> None:
        while True:
            self._look(summary, "running" if self._pipeline.is_ready else "Spark is starting")
            if ending.wait(LOOK_EVERY_S):
                return

    def until_caught_up(self, summary: Summary) -> None:
        """Or until nobody has come any further for long; the books will tell then what is missing."""
        least = deadline = math.inf
        while behind := self._look(summary, "no more events; everybody reads to the end").behind:
            left = sum(behind.values())
            if left < least:
                least, deadline = left, time.monotonic() + CATCH_UP_S
            if time.monotonic() >= deadline:
                note(f"no progress for {CATCH_UP_S:.0f} s: {', '.join(behind)}; see {self._pipeline.log_path}")
                return
            time.sleep(LOOK_EVERY_S)

    def close(self) -> None:
        self._observer.close()

    def _look(self, summary: Summary, doing: str) -> Figures:
        self._check()
        try:
            figures = self._observer.look()
        except SkylogError:
            self._check()  # a broker that has ended is the cause of everything else
            raise
        summary.show(figures, doing, list(self._newsfeed.latest))
        return figures

    def _check(self) -> None:
        if not self._broker.is_running:
            raise SkylogError(f"the broker ended; its last words: {self._broker.stderr().strip()[-500:]}")
        self._pipeline.check()
        if self._newsfeed.error is not None:
            raise SkylogError(f"group {NEWSFEED} gave up: {self._newsfeed.error}") from self._newsfeed.error
