"""The pictures of the jobs in the docs, of a run with the demo's website; with `make screenshots`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from random import Random
from typing import Final

import pytest
from playwright.sync_api import Browser, Page, expect

from skylog import Admin, Producer
from skylog.demo.articles import article, subscription
from skylog.demo.website import PAGES, RISING_PAGE, Website
from skylog.testing import BrokerProcess
from tests.console.browser.conftest import IMAGES, KEEPS_IMAGES, NewPage
from tests.console.conftest import running_console

if KEEPS_IMAGES:
    from pyspark.sql import SparkSession

    from tests.spark.conftest import spark, spark_session

    __all__ = ["spark", "spark_session"]

REQUESTS: Final = 20_000
DAY_MS: Final = 86_400_000

pytestmark = [pytest.mark.skipif(not KEEPS_IMAGES, reason="with `make screenshots`"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def site() -> Iterator[BrokerProcess]:
    """A broker with the pages and users of the demo's website, of yesterday, and with its visitors of today."""
    website = Website(Random(1), rises_after_s=0)
    today_ms = time.time_ns() // 1_000_000 // DAY_MS * DAY_MS
    with BrokerProcess() as broker:
        for topic in ("pages", "users", "page_views"):
            Admin(broker.bootstrap).create_topic(topic, 1)
        with Producer(broker.bootstrap) as producer, producer.batch():
            for number, page in enumerate((*PAGES[:12], RISING_PAGE)):
                at_ms = today_ms - DAY_MS // 2 + number * 1000
                producer.send("pages", article(page), page, timestamp_ms=at_ms)
            for page in PAGES[12:]:
                producer.send("pages", article(page), page, timestamp_ms=today_ms - DAY_MS)
            for user in website.users:
                producer.send("users", subscription(user), str(user.id))
            for number in range(REQUESTS):
                at_ms = today_ms + 2 * 3_600_000 + number * 100
                for each in website.request(5):
                    event = {"event": each.event, "user": {"id": each.user.id}, "attributes": each.attributes}
                    producer.send("page_views", event, str(each.user.id), timestamp_ms=at_ms)
        yield broker


def test_search(site: BrokerProcess, spark: SparkSession, new_page: NewPage, tmp_path: Path) -> None:
    from skylog.pipeline.jobs.search import SearchIndex, search_job

    search_job(["pages"], SearchIndex(tmp_path / "search.db")).run(spark, site.bootstrap, once=True)
    with running_console(site, "--search-index", str(tmp_path / "search.db")) as console:
        page = new_page(console, viewport={"width": 1280, "height": 640})
        page.goto("/search?q=night+ferry&limit=5")
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        page.screenshot(path=str(IMAGES / "jobs-search.png"))


def test_recommendations(site: BrokerProcess, spark: SparkSession, tmp_path: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot

    from skylog.pipeline import Table
    from skylog.pipeline.jobs.recommendations import recommendations_job

    path = tmp_path / "recommendations"
    recommendations_job(site.bootstrap, ["page_views"], path, top=5).run(spark, site.bootstrap, once=True)
    rows = {row.page: row for row in Table(path).read(spark).collect()}
    shown = (RISING_PAGE, PAGES[1], PAGES[3])
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(8, 6.5), layout="constrained")
    for axis, page in zip(axes, shown, strict=True):
        best = list(reversed(rows[page].recommended))
        names = [f"{article(each.page)['title']}  {each.page}" for each in best]
        bars = axis.barh(names, [each.score for each in best], color="#4f6bd8")
        axis.bar_label(bars, [f" {each.together} visits" for each in best], fontsize=8)
        axis.set_title(f"{article(page)['title']}  {page}", loc="left", fontsize=10, fontweight="bold")
        axis.margins(x=0.15)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    axes[-1].set_xlabel("score")
    figure.savefig(IMAGES / "jobs-recommendations.png", dpi=110)


def test_newsletters(site: BrokerProcess, spark: SparkSession, chromium: Browser, tmp_path: Path) -> None:
    from skylog.pipeline import Cluster
    from skylog.pipeline.jobs.newsletters.job import newsletters_job
    from skylog.pipeline.jobs.newsletters.mail import Letterhead
    from skylog.pipeline.jobs.newsletters.sender import SendSettings, send_newsletters
    from skylog.pipeline.jobs.newsletters.submission import SmtpServer
    from tests.pipeline.jobs.mail_server import Mailbox, mail_server

    job = newsletters_job(site.bootstrap, "pages", "users", clocks=["page_views"])
    job.run(spark, site.bootstrap, once=True, state=tmp_path / "state")
    mailbox = Mailbox()
    with mail_server(mailbox) as port:
        settings = SendSettings(SmtpServer(port=port), Letterhead("news@harbour.example", "https://harbour.example"))
        assert send_newsletters(Cluster(site.bootstrap), "newsletters", settings, once=True)["sent"] > 100
    mail = next(each for each in mailbox.mails() if "comet" in each.as_string())
    body = mail.get_body(("html",))
    assert body is not None
    head = "".join(
        f"<div><b>{name}:</b> {escape(mail[name])}</div>" for name in ("From", "To", "Subject", "Message-ID")
    )
    style = "body{font:15px sans-serif;margin:24px;width:680px}h2{font-size:17px;margin:14px 0 4px}p{margin:4px 0}"
    with _page(chromium) as page:
        page.set_content(f"<style>{style}</style><div style='color:#555'>{head}</div><hr>{body.get_content()}")
        page.screenshot(path=str(IMAGES / "jobs-newsletters.png"))


@contextmanager
def _page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(viewport={"width": 760, "height": 460})
    yield context.new_page()
    context.close()
