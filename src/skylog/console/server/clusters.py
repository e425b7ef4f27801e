"""Serves several clusters: the pages of the first are at `/`, those of another at `/@NAME/`.

Pages link to paths without the prefix. It is added to the attributes of rendered pages and to redirects, so a page
stays with its cluster, also in a second tab. Content of pages is escaped, so it has no such attributes.
"""

from __future__ import annotations

import re
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

CLUSTER: Final = "skylog_cluster"
_PATH: Final = re.compile(r"/@([^/]*)(/.*)?", re.DOTALL)
_OWN_LINK: Final = re.compile(r'(\s(?:href|action|data-copy)=")/(?!static/|login|logout|@|/)')


class ClusterPrefix:
    """ASGI middleware that removes the prefix of a cluster from a path and notes the cluster in the scope."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = _PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is not None:
            scope = {**scope, "path": match[2] or "/"} | ({CLUSTER: match[1]} if match[1] else {})
        await self._app(scope, receive, send)


def prefix_of(scope: Scope) -> str:
    """Return the prefix of the paths of a request's cluster, empty for the first."""
    return f"/@{scope[CLUSTER]}" if CLUSTER in scope else ""


def prefixed(html: str, prefix: str) -> str:
    """Add the prefix of a cluster to the links of a page."""
    return _OWN_LINK.sub(rf"\1{prefix}/", html) if prefix else html
