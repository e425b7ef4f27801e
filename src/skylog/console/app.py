"""The console's ASGI application: its routes, its middleware and the objects that pages share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from skylog import __version__
from skylog.client.cluster_users import ClusterUsers, console_rights
from skylog.console.background.alerts_reader import AlertsReader
from skylog.console.background.audit_reader import AuditReader
from skylog.console.background.jobs_reader import JobsReader
from skylog.console.cluster.client_pool import ClientPool
from skylog.console.cluster.parent_broker import ParentBroker
from skylog.console.cluster.topic_configs import TopicConfigs
from skylog.console.messages.feed import Feeds
from skylog.console.messages.replays import Replays
from skylog.console.messages.schema_reader import SchemaReader
from skylog.console.messages.view import head, kind, readable
from skylog.console.monitoring.cluster_monitor import ClusterMonitor
from skylog.console.monitoring.replica_monitor import ReplicaMonitor
from skylog.console.pages import ROUTES
from skylog.console.rendering import formatting, plot
from skylog.console.server.clusters import CLUSTER, ClusterPrefix, prefix_of, prefixed
from skylog.console.server.fields import FORM, Fields
from skylog.console.server.guard import Guard
from skylog.console.server.page import FIRST, REJECTED, JsonSuffix, Page, view
from skylog.console.settings import Settings
from skylog.web.credentials import Credentials

HERE: Final = Path(__file__).parent
SECTIONS: Final = (
    ("/", "Overview"),
    ("/cluster", "Brokers"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/audit", "Audit"),
    ("/mirrors", "Mirrors"),
    ("/pipelines", "Pipelines"),
    ("/alerts", "Alerts"),
)


class Console:
    """The objects that pages share: the cluster, its latest snapshot, and the templates. One per cluster."""

    def __init__(
        self, settings: Settings, broker: ParentBroker | None = None, first_cluster: str | None = None
    ) -> None:
        self.settings = settings
        self.broker = broker
        self.cluster = ClientPool(settings.bootstrap, settings.options)
        connection = self.cluster.connection()
        users = ClusterUsers(connection, console_rights(connection)) if settings.asks_users else None
        self.credentials = Credentials(settings, users)
        self.monitor = ClusterMonitor(self.cluster, broker)
        self.replicas = ReplicaMonitor(self.cluster)
        self.topic_configs = TopicConfigs(self.cluster)
        self.feeds = Feeds()
        self.replays = Replays(self.cluster.connection)
        self.audit = AuditReader(self.cluster)
        self.jobs = JobsReader(self.cluster)
        self.alerts = AlertsReader(self.cluster)
        self.registry = None if settings.registry is None else SchemaReader(settings)
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(
            count=formatting.count,
            size=formatting.size,
            percent=formatting.percent,
            rate=formatting.rate,
            byte_rate=formatting.byte_rate,
            milliseconds=formatting.milliseconds,
            duration=formatting.duration,
            utc_time=formatting.utc_time,
            ago=formatting.ago,
            link=formatting.link,
            kind=kind,
            readable=readable,
            head_of=head,
            moment=formatting.moment,
            line_plot=plot.line_plot,
            line=plot.Line,
            lines=plot.lines,
            settings=settings,
            first_cluster=first_cluster or settings.bootstrap,
            sections=_sections(settings),
            version=__version__,
        )

    @property
    def measured_broker(self) -> int | None:
        """The parent broker, if it is one of several. Bytes, sizes and requests are known only of this one."""
        return self.monitor.parent_id if self.replicas.is_one_of_several(self.monitor.parent_id) else None

    def render(self, request: Request, page: Page) -> str:
        template = self.templates.get_template(page.template)
        pairs = [(name, value) for name, value in request.query_params.multi_items() if name != "format"]
        html = template.render(
            page.document,
            title=page.title,
            path=request.scope["path"],
            json_link=f"?{urlencode([*pairs, ('format', 'json')])}",
            cluster_problem=self.monitor.doubt,
            cluster_seen_ms=self.monitor.latest.taken_at_ms,
            rejected=request.scope.get(REJECTED),
            filled=partial(_filled, request.scope.get(FORM)),
            filled_all=partial(_filled_all, request.scope.get(FORM)),
            cluster_name=request.scope.get(CLUSTER, FIRST),
        )
        return prefixed(html, prefix_of(request.scope))

    def close(self) -> None:
        self.audit.close()
        self.jobs.topic.close()
        self.alerts.topic.close()
        self.replays.stop()
        self.cluster.close()

    def fragment(self, request: Request, template: str, **values: Any) -> str:
        """Render part of a page, for streams."""
        return prefixed(self.templates.get_template(template).render(values), prefix_of(request.scope))


def _sections(settings: Settings) -> tuple[tuple[str, str], ...]:
    more = {"/schemas": "Schemas"} if settings.registry is not None else {}
    more |= {"/search": "Search"} if settings.search_index is not None else {}
    return (*SECTIONS, *more.items())


def _filled(form: Fields | None, action: str, name: str, default: object = "", **others: str) -> str:
    """Return what a visitor has filled into a field of the form that was rejected, the default for other forms."""
    given = {"action": action, **others}
    is_this = form is not None and all(form.text(key, "") == value for key, value in given.items())
    return form.text(name, "") if form is not None and is_this else "" if default is None else str(default)


def _filled_all(form: Fields | None, action: str, name: str) -> Sequence[str]:
    """Like `_filled`, for a field that can be repeated."""
    return form.all(name) if form is not None and form.text("action", "") == action else ()


def create_app(settings: Settings, broker: ParentBroker | None = None) -> Starlette:
    """Create the ASGI application. Raises ConfigError if the settings are invalid or unsafe."""
    settings.check()
    first = Console(settings, broker)
    others = {
        name: Console(replace(settings, bootstrap=address, registry=None), None, settings.bootstrap)
        for name, address in settings.clusters.items()
    }
    for each in others.values():
        each.credentials = first.credentials
    consoles = {FIRST: first, **others}

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        runs = [run() for each in consoles.values() for run in (each.monitor.run, each.replicas.run)]
        monitoring = asyncio.gather(*runs)
        try:
            yield
        finally:
            monitoring.cancel()
            with suppress(asyncio.CancelledError):
                await monitoring
            for each in consoles.values():
                each.close()

    app = Starlette(
        routes=[
            *(Route(path, view(handler), methods=methods) for path, handler, methods in ROUTES),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[
            Middleware(Guard, settings=settings, credentials=first.credentials),
            Middleware(JsonSuffix),
            Middleware(ClusterPrefix),
        ],
        exception_handlers={HTTPException: _http_error},
        lifespan=lifespan,
    )
    app.state.consoles = consoles
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """Render the framework's errors, such as unknown paths and methods, as pages of the console."""
    assert isinstance(error, HTTPException)
    reason = error.detail if error.status_code != 404 else f"there is no page {request.scope['path']}"
    page = Page("problem.html", "Not found", {"error": reason}, error.status_code, error.headers or {})

    async def show(_: Request) -> Page:
        return page

    return await view(show)(request)
