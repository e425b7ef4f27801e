"""The console put together: what all pages share, the routes, and what stands before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol
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
from skylog.console import plot, words
from skylog.console.audit_watch import AuditWatch
from skylog.console.cluster import Cluster
from skylog.console.credentials import Credentials
from skylog.console.guard import Guard
from skylog.console.jobs_watch import JobsWatch
from skylog.console.messages.feed import Feeds
from skylog.console.messages.replays import Replays
from skylog.console.messages.view import kind, readable
from skylog.console.page import Endings, Page, view
from skylog.console.pages import ROUTES
from skylog.console.settings import Settings
from skylog.console.topic_configs import TopicConfigs
from skylog.console.watch import MetricSource, Watch

HERE: Final = Path(__file__).parent
SECTIONS: Final = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/audit", "Audit"),
    ("/pipelines", "Pipelines"),
)


class Broker(MetricSource, Protocol):
    """The broker that this console was started by and stands beside."""

    async def health(self) -> Mapping[str, Any]: ...

    async def ended(self) -> None:
        """Returns when it has."""
        ...


class Console:
    """What pages work with: the cluster, what was last seen of it, and how pages are drawn."""

    def __init__(self, settings: Settings, broker: Broker | None = None) -> None:
        self.settings = settings
        self.credentials = Credentials(settings)
        self.broker = broker
        self.cluster = Cluster(settings.bootstrap, settings.options)
        self.watch = Watch(self.cluster, broker)
        self.topic_configs = TopicConfigs(self.cluster)
        self.feeds = Feeds()
        self.replays = Replays(self.cluster.connection)
        self.audit = AuditWatch(self.cluster)
        self.jobs = JobsWatch(self.cluster)
        self.templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self.templates.globals.update(
            count=words.count,
            size=words.size,
            rate=words.rate,
            byte_rate=words.byte_rate,
            milliseconds=words.milliseconds,
            span=words.span,
            moment=words.moment,
            ago=words.ago,
            link=words.link,
            kind=kind,
            readable=readable,
            line_plot=plot.line_plot,
            line=plot.Line,
            lines=plot.lines,
            settings=settings,
            sections=SECTIONS,
            version=__version__,
        )

    def render(self, request: Request, page: Page) -> str:
        template = self.templates.get_template(page.template)
        pairs = [(name, value) for name, value in request.query_params.multi_items() if name != "format"]
        return template.render(
            page.document,
            title=page.title,
            path=request.scope["path"],
            json_link=f"?{urlencode([*pairs, ('format', 'json')])}",
            watch_problem=self.watch.problem,
        )

    def fragment(self, template: str, **values: Any) -> str:
        """A piece of a page, for streams."""
        return self.templates.get_template(template).render(values)


def create_app(settings: Settings, broker: Broker | None = None) -> Starlette:
    """The ASGI application. Raises ConfigError where the settings would let everybody in."""
    settings.check()
    console = Console(settings, broker)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        watching = asyncio.create_task(console.watch.run())
        try:
            yield
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
            console.audit.close()
            console.jobs.close()
            console.replays.stop()
            console.cluster.close()

    app = Starlette(
        routes=[
            *(Route(path, view(handler), methods=methods) for path, handler, methods in ROUTES),
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[
            Middleware(Guard, settings=settings, credentials=console.credentials),
            Middleware(Endings),
        ],
        exception_handlers={HTTPException: _not_found},
        lifespan=lifespan,
    )
    app.state.console = console
    return app


async def _not_found(request: Request, error: Exception) -> Response:
    """Pages that do not exist, and methods that a page does not take, in the console's own form."""
    assert isinstance(error, HTTPException)
    told = error.detail if error.status_code != 404 else f"there is no page {request.scope['path']}"
    page = Page("problem.html", "Not found", {"error": told}, error.status_code, error.headers or {})

    async def show(_: Request) -> Page:
        return page

    return await view(show)(request)
