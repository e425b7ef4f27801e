"""A difference that makes two schemas incompatible, and its sentence."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason why a reader cannot read what a writer has written."""

    kind: str
    """The registry's name for it, such as NAME_MISMATCH."""
    path: str
    """Where it is, as the format's paths are written in messages."""
    description: str
    """A sentence in which {reader} and {writer} stand for the words for the two schemas."""
    detail: str | None = None
    """What Avro's checks say besides."""

    def message(self, reader: str, writer: str) -> str:
        sentence = self.description.replace("{reader}", reader).replace("{writer}", writer)
        if self.detail is None:
            return f'{{errorType:"{self.kind}", description:"{sentence}"}}'
        return f"{{errorType:'{self.kind}', description:'{sentence}', additionalInfo:'{self.detail}'}}"
