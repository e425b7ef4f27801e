"""The blog of examples/ behind uvicorn, with its events or without: `python benchmarks/blog_server.py with|without`.

Its page `/pages/1` shows a post and fires five events. Without events the same page calls a function that does nothing,
and there is no middleware. So the difference is the cost of event tracking.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "blog"))

import blog  # after its directory is known

EVENTS_PER_REQUEST = 5


async def show_page(request: Request) -> Response:
    post = blog.find_post(request)
    user = blog.current_user(request)
    for part in ("header", "post", "comments", "related", "footer"):
        blog.events.fire("part.show", user, id=post["id"], title=post["title"], part=part)
    return JSONResponse(post)


def main(mode: str) -> None:
    if mode == "without":
        blog.events.fire = lambda *args, **attributes: None
        blog.app.user_middleware.clear()
    blog.app.routes.append(Route("/pages/{id:int}", show_page))
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"listening on 127.0.0.1:{listener.getsockname()[1]}", flush=True)
    config = uvicorn.Config(blog.app, log_level="warning", access_log=False, timeout_keep_alive=600)
    uvicorn.Server(config).run([listener])


if __name__ == "__main__":
    main(sys.argv[1])
