"""One console of several clusters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skylog import Admin
from skylog.console.server.clusters import prefixed
from skylog.testing import BrokerProcess
from tests.console.conftest import RunningConsole, running_console


@pytest.fixture(scope="module")
def console(broker: BrokerProcess) -> Iterator[RunningConsole]:
    with BrokerProcess() as other:
        Admin(other.bootstrap).create_topic("western", 1)
        Admin(broker.bootstrap).create_topic("eastern", 1)
        with running_console(broker, "--cluster", f"west={other.bootstrap}") as running:
            yield running


def names(console: RunningConsole, path: str) -> set[str]:
    topics = console.json(path)["topics"]
    assert isinstance(topics, list)
    return {row["name"] for row in topics}


def test_each_cluster_has_its_own_pages(console: RunningConsole) -> None:
    assert "eastern" in names(console, "/topics")
    assert names(console, "/@west/topics") == {"western"}
    assert "western" not in names(console, "/topics")


def test_links_and_redirects_stay_with_the_cluster(console: RunningConsole) -> None:
    html = console.get("/@west/topics").text
    assert 'href="/@west/topics/western"' in html
    assert 'action="/@west/topics"' in html
    assert 'href="/static/console.css"' in html
    response = console.post("/@west/topics", action="create", name="made-west")
    assert (response.status_code, response.headers["location"]) == (303, "/@west/topics/made-west")
    assert "made-west" in names(console, "/@west/topics")
    assert "made-west" not in names(console, "/topics")


def test_every_page_links_to_all_clusters(console: RunningConsole) -> None:
    for path in ("/", "/@west/"):
        html = console.get(path).text
        assert 'href="/@/"' in html
        assert 'href="/@west/"' in html
    assert console.get("/@/topics").status_code == 200


def test_a_cluster_that_is_not_there_is_not_found(console: RunningConsole) -> None:
    response = console.get("/@north/topics")
    assert response.status_code == 404
    assert "no cluster &#39;north&#39;" in response.text


def test_only_own_links_get_the_prefix() -> None:
    html = '<a href="/a"></a><form action="/b"></form><a href="//host/"></a><link href="/static/c"><p>&quot;href="/</p>'
    assert prefixed(html, "/@x") == html.replace('"/a"', '"/@x/a"').replace('"/b"', '"/@x/b"')
