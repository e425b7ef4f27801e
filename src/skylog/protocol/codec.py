"""Builds a function from source text, for the generated readers and writers.

Like in `dataclasses`, codecs are generated as Python source and compiled once. `FunctionSource` collects the lines and
the objects that they refer to. The text is registered with `linecache`, so that tracebacks and debuggers show it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class FunctionSource:
    """The lines of one function under construction, and the names that it uses."""

    def __init__(self, signature: str, names: dict[str, object]) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._names = dict(names)
        self._bound: dict[object, str] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Write `head`, and indent the lines written inside the `with` block."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, key: object, prefix: str, value: object) -> str:
        """Return a name for `value` in the function's namespace; the same name for the same (hashable) `key`."""
        name = self._bound.get(key)
        if name is None:
            name = self._bound[key] = f"{prefix}{len(self._bound)}"
            self._names[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, title: str) -> Callable[..., Any]:
        """Compile the function. `title` is its file name in tracebacks."""
        text = self.text
        filename = f"<skylog {title}>"
        namespace: dict[str, Any] = dict(self._names)
        exec(compile(text, filename, "exec"), namespace)
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        name = text[len("def ") : text.index("(")]
        function: Callable[..., Any] = namespace[name]
        return function
