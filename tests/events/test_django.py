"""The Django middleware, behind WSGI and ASGI, over HTTP."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import django
import pytest
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.test import override_settings
from django.urls import path

from skylog.events import EventLog
from skylog.events.asgi import EventMiddleware as AsgiEventMiddleware
from skylog.events.django import EventMiddleware
from tests.broker.process import BrokerProcess

from .conftest import events_in, names_in
from .fake_producer import FakeProducer
from .servers import serve_asgi, serve_wsgi

settings.configure(
    DEBUG=False,
    SECRET_KEY="of no use",
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes"],
    MIDDLEWARE=["skylog.events.django.EventMiddleware"],
    LOGGING_CONFIG=None,
)
django.setup()


def show(request: Any) -> HttpResponse:
    from django.contrib.auth.models import AnonymousUser, User

    log: EventLog = settings.SKYLOG_EVENTS
    log.fire("page.view", AnonymousUser(), path=request.path)
    log.fire("post.show", User(pk=7, username="ada"))
    assert log.stats().handed_over == 0
    return HttpResponse("shown")


async def show_async(request: Any) -> HttpResponse:
    return show(request)


def fail(request: Any) -> HttpResponse:
    settings.SKYLOG_EVENTS.fire("failing")
    raise RuntimeError("a bug")


urlpatterns = [path("show", show), path("show_async", show_async), path("fail", fail)]


@pytest.mark.parametrize("url", ["/show", "/show_async"])
@pytest.mark.parametrize("protocol", ["wsgi", "asgi", "asgi with the ASGI middleware"])
def test_the_events_of_a_request_arrive(
    broker: BrokerProcess, events: EventLog, topic: str, protocol: str, url: str
) -> None:
    with override_settings(SKYLOG_EVENTS=events):
        if protocol == "wsgi":
            server = serve_wsgi(get_wsgi_application())
        elif protocol == "asgi":
            server = serve_asgi(get_asgi_application())
        else:
            server = serve_asgi(AsgiEventMiddleware(get_asgi_application(), events))
        with server as client:
            assert client.get(url).text == "shown"
        assert events.flush() == 0
    viewed, shown = events_in(broker.bootstrap, topic)
    assert (viewed["event"], viewed["user"]) == ("page.view", None)
    assert (shown["event"], shown["user"]["id"]) == ("post.show", 7)
    assert shown["user"]["created_at"] > 1_700_000_000


def test_a_view_that_fails_hands_its_events_over(broker: BrokerProcess, events: EventLog, topic: str) -> None:
    with override_settings(SKYLOG_EVENTS=events), serve_wsgi(get_wsgi_application()) as client:
        assert client.get("/fail").status_code == 500
    assert events.flush() == 0
    assert names_in(broker.bootstrap, topic) == ["failing"]


def test_the_log_may_be_given_as_a_dotted_path(monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = ModuleType("blog_tracking")
    tracking.events = EventLog(FakeProducer())  # type: ignore[attr-defined] # a module made on the spot
    monkeypatch.setitem(sys.modules, "blog_tracking", tracking)
    with override_settings(SKYLOG_EVENTS="blog_tracking.events"):
        assert EventMiddleware(show).events is tracking.events


@pytest.mark.parametrize("value", [None, "os.path", 7])
def test_a_setting_that_is_no_event_log_is_explained(value: object) -> None:
    with (
        override_settings(SKYLOG_EVENTS=value),
        pytest.raises(ImproperlyConfigured, match="set it to an EventLog, or to the dotted path of one"),
    ):
        EventMiddleware(show)
