"""One authority for all tests of a process, and another one that nobody trusts."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

from skylog.security.certificates import Authority, Certified

HOSTS = ("127.0.0.1", "localhost")


@cache
def authority() -> Authority:
    return Authority("skylog tests")


@cache
def other_authority() -> Authority:
    return Authority("somebody else")


@cache
def server() -> Certified:
    return authority().issue("broker", HOSTS)


@cache
def client(name: str = "alice") -> Certified:
    return authority().issue(name, organization="Skylog, Inc.")


def write(path: Path, *texts: str) -> Path:
    path.write_text("".join(texts))
    return path


def context_of(folder: Path, certified: Certified | None = None) -> ssl.SSLContext:
    """The context of a client that trusts the authority, with a certificate of its own if there is one."""
    context = ssl.create_default_context(cadata=authority().certificate)
    if certified is not None:
        context.load_cert_chain(write(folder / "own.pem", certified.key, certified.certificate))
    return context
