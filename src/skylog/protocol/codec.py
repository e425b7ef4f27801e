"""Source text that becomes a function: the common ground of the generated readers and writers.

Like `dataclasses`, the codecs are written as Python source and compiled once. `Source` collects the lines and the
objects that they refer to. The text is handed to `linecache`, so that tracebacks and debuggers show it.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class Source:
    """Lines of one function under construction, with the names that it uses."""

    def __init__(self, signature: str, names: dict[str, object]) -> None:
        self._lines = [f"def {signature}:"]
        self._depth = 1
        self._names = dict(names)
        self._bound: dict[object, str] = {}

    def line(self, text: str) -> None:
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """The lines written inside the `with` stand one level deeper, under `head`."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def bind(self, key: object, prefix: str, value: object) -> str:
        """A name for `value` in the function's namespace; the same name for the same (hashable) `key`."""
        name = self._bound.get(key)
        if name is None:
            name = self._bound[key] = f"{prefix}{len(self._bound)}"
            self._names[name] = value
        return name

    @property
    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def compile(self, title: str) -> Callable[..., Any]:
        """The function; `title` stands for the file name in tracebacks."""
        text = self.text
        filename = f"<skylog {title}>"
        namespace: dict[str, Any] = dict(self._names)
        exec(compile(text, filename, "exec"), namespace)
        linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
        name = text[len("def ") : text.index("(")]
        function: Callable[..., Any] = namespace[name]
        return function
