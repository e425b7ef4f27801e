"""The constructor of a declared class, generated like the codecs: keyword arguments, some of them with defaults."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final

from skylog.protocol.codec import FunctionSource

_NEW: Final = object()
"""The default of an argument whose value is made for each instance."""


def make_init(cls: type) -> Callable[..., None]:
    """Return the `__init__` of a dataclass that was declared without one."""
    arguments: list[str] = []
    lines: list[str] = []
    names: dict[str, object] = {"_new": _NEW}
    for declared in dataclasses.fields(cls):
        name = declared.name
        value, default = name, ""
        if declared.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = declared.default
            default = f"=_default_{name}"
        elif declared.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = declared.default_factory
            default, value = "=_new", f"_make_{name}() if {name} is _new else {name}"
        arguments.append(name + default)
        lines.append(f"self.{name} = {value}")
    source = FunctionSource(f"__init__(self, {', '.join(['*', *arguments]) if arguments else ''})", names)
    for line in lines or ["pass"]:
        source.line(line)
    init: Callable[..., Any] = source.compile(f"new {cls.__name__}")
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init
