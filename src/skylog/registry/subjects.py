"""Names of subjects, and the contexts in them.

A name may begin with a context: `:.west:orders` is the subject `orders` in the context `.west`. Other names are in the
default context `.`. Each context counts its own ids. `:.west:` alone stands for the context, in configs and modes.
"""

from __future__ import annotations

from typing import Final

from skylog.registry.errors import invalid_subject

DEFAULT_CONTEXT: Final = "."
ALL_CONTEXTS: Final = ":*:"
RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})
_MARK: Final = ":"


def context_of(name: str) -> str:
    """Return the context of a qualified name, `.` for any other."""
    if not name.startswith(":."):
        return DEFAULT_CONTEXT
    return name[1:].partition(_MARK)[0]


def bare_name(name: str) -> str:
    """Return the name without its context."""
    return name[1:].partition(_MARK)[2] if name.startswith(":.") else name


def qualify(name: str, context: str) -> str:
    """Return the name of a subject in a context. A name that has a context keeps it."""
    return name if context == DEFAULT_CONTEXT or name.startswith(":.") else f":{context}:{name}"


def context_scope(name: str) -> str | None:
    """Return the name under which the context of a subject keeps its config and mode; None for the default one."""
    context = context_of(name)
    return None if context == DEFAULT_CONTEXT else f":{context}:"


def parse_context(text: str) -> str:
    """Parse a context in a path: `:.west:`, `.west` or `west`. Raises RegistryError."""
    name = text.strip(_MARK).removeprefix(".")
    if not name:
        return DEFAULT_CONTEXT
    check_characters(name)
    return f".{name}"


def check_subject(name: str) -> None:
    """Raise RegistryError if a schema cannot be registered under this name."""
    check_characters(name)
    if not bare_name(name).strip() or bare_name(name) in RESERVED:
        raise invalid_subject(name)


def check_characters(name: str) -> None:
    has_controls = any(ord(each) < 32 or 127 <= ord(each) < 160 for each in name)
    if has_controls or (name.startswith(":.") and name.count(_MARK) < 2):
        raise invalid_subject(name)
