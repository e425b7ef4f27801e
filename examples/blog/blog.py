"""A small blog that tracks its users. Run it with `uvicorn blog:app`; see README.md.

Environment variables: BLOG_DATABASE (blog.db), SKYLOG_BOOTSTRAP (127.0.0.1:9092), BLOG_TOPIC (blog_log).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from json import JSONDecodeError
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from store import NameTakenError, Store, User

from skylog.audit import ProducerAudit
from skylog.client import Producer
from skylog.events import EventLog
from skylog.events.asgi import EventMiddleware

store = Store(os.environ.get("BLOG_DATABASE", "blog.db"))
producer = Producer(audit=ProducerAudit("blog"))
events = EventLog(producer, topic=os.environ.get("BLOG_TOPIC", "blog_log"), application="blog")


async def list_posts(request: Request) -> Response:
    view_page(request)
    return JSONResponse(store.posts())


async def show_post(request: Request) -> Response:
    post = find_post(request)
    view_page(request)
    events.fire("post.show", current_user(request), id=post["id"], title=post["title"])
    return JSONResponse(post)


async def create_post(request: Request) -> Response:
    user = logged_in_user(request)
    title, body = await fields(request, "title", "body")
    post_id = store.add_post(user, title, body)
    events.fire("post.create", user, id=post_id, title=title, body=body, organisation=user.organisation_id)
    return JSONResponse({"id": post_id}, status_code=201)


async def create_comment(request: Request) -> Response:
    user = logged_in_user(request)
    post = find_post(request)
    (body,) = await fields(request, "body")
    comment_id = store.add_comment(user, post["id"], body)
    events.fire("comment.create", user, id=comment_id, post_id=post["id"], body=body, organisation=user.organisation_id)
    return JSONResponse({"id": comment_id}, status_code=201)


async def follow(request: Request) -> Response:
    """Follow an author, or with DELETE no longer: `skylog pipeline run feed` delivers their posts."""
    user = logged_in_user(request)
    author = store.user_named(request.path_params["name"])
    if author is None:
        raise HTTPException(404, f"user {request.path_params['name']} not found")
    follows = request.method == "POST"
    store.follow(user, author, follows=follows)
    events.fire("user.follow" if follows else "user.unfollow", user, author=author.id)
    return JSONResponse({"follows": follows})


async def sign_up(request: Request) -> Response:
    name, password, organisation = await fields(request, "name", "password", "organisation")
    try:
        user = store.sign_up(name, password, organisation)
    except NameTakenError:
        events.fire("user.signup_failed", reason="name taken")
        raise HTTPException(409, f"the name {name} is taken") from None
    events.fire("user.signup", user, name=name, organisation=user.organisation_id)
    return JSONResponse({"id": user.id}, status_code=201)


async def log_in(request: Request) -> Response:
    name, password = await fields(request, "name", "password")
    token = store.log_in(name, password)
    if token is None:
        events.fire("user.login_failed", name=name, address=address(request))
        raise HTTPException(401, "wrong name or password")
    events.fire("user.login", store.user_of(token), name=name, address=address(request))
    response = JSONResponse({})
    response.set_cookie("session", token, httponly=True, samesite="lax")
    return response


async def metrics(request: Request) -> Response:
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)


def view_page(request: Request) -> None:
    """Fire `page.view`, with the organisation of a user who is logged in: `skylog pipeline run visits` counts those."""
    user = current_user(request)
    attributes = {} if user is None else {"organisation": user.organisation_id}
    events.fire("page.view", user, path=request.url.path, referrer=request.headers.get("referer"), **attributes)


def address(request: Request) -> str | None:
    """Return the visitor's address, for `skylog pipeline run security`. Behind a proxy, use what it forwards."""
    return None if request.client is None else request.client.host


def current_user(request: Request) -> User | None:
    """Return the user who is logged in. Looked up once per request."""
    if not hasattr(request.state, "user"):
        token = request.cookies.get("session")
        request.state.user = None if token is None else store.user_of(token)
    user: User | None = request.state.user
    return user


def logged_in_user(request: Request) -> User:
    user = current_user(request)
    if user is None:
        raise HTTPException(401, "log in first")
    return user


def find_post(request: Request) -> dict[str, Any]:
    post = store.post(request.path_params["id"])
    if post is None:
        raise HTTPException(404, f"post {request.path_params['id']} not found")
    return post


async def fields(request: Request, *names: str) -> list[str]:
    """Return these fields of the request's JSON. All are required."""
    try:
        form = await request.json()
    except (JSONDecodeError, UnicodeDecodeError):
        form = None
    values = [form.get(name) for name in names] if isinstance(form, dict) else [None]
    if not all(isinstance(value, str) and value for value in values):
        raise HTTPException(422, f"expected a JSON object with the strings {', '.join(names)}")
    return values


async def explain(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code)


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(events.close)
    await asyncio.to_thread(producer.close, 5)  # publishes the last counts of the audit


app = Starlette(
    routes=[
        Route("/posts", list_posts),
        Route("/posts", create_post, methods=["POST"]),
        Route("/posts/{id:int}", show_post),
        Route("/posts/{id:int}/comments", create_comment, methods=["POST"]),
        Route("/users", sign_up, methods=["POST"]),
        Route("/users/{name}/followers", follow, methods=["POST", "DELETE"]),
        Route("/sessions", log_in, methods=["POST"]),
        Route("/metrics", metrics),
    ],
    middleware=[Middleware(EventMiddleware, events=events)],
    exception_handlers={HTTPException: explain},
    lifespan=lifespan,
)
