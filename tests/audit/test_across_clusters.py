"""`skylog audit --mirror`: produced at west = stored at west = stored at the cluster that mirrors it."""

from __future__ import annotations

import time
from pathlib import Path

from skylog import Admin, Producer
from skylog.audit import AUDIT_TOPIC, ProducerAudit
from skylog.client.connection import Connection
from skylog.client.mirrors import MirrorAdmin
from skylog.testing import BrokerProcess
from tests.cli.conftest import Skylog

TEN_MINUTES_MS = 600_000


def test_the_books_balance_across_sites_once_the_mirror_has_everything(tmp_path: Path) -> None:
    with BrokerProcess() as one, BrokerProcess() as two:
        west, mirrors = Skylog(one.bootstrap), MirrorAdmin(Connection(two.bootstrap))
        Admin(two.bootstrap).create_topic(AUDIT_TOPIC)
        across = ["--topic", "clicks", "--mirror", two.bootstrap, "--mirror-prefix", "west."]
        with Producer(west.bootstrap, audit=ProducerAudit("shop", journal_dir=tmp_path)) as producer:
            for number in range(100):
                producer.send("clicks", str(number), timestamp_ms=int(time.time() * 1000) - TEN_MINUTES_MS)
        west("audit", "verify", "--topic", "clicks", "--tiers", "produced,stored", "--wait", "60")
        found = west("audit", "verify", *across, code=1).stdout
        assert f"late 100 (landed in {two.bootstrap})" in found, found

        mirrors.create("west", west.bootstrap, ["clicks"], prefix="west.")
        west("audit", "verify", *across, "--wait", "60")
        (row,) = west.json("audit", "show", *across, "--json")
        assert (row["produced"], row["stored"], row["landed"]) == (100, 100, {two.bootstrap: 100})
