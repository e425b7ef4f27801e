"""Generates the function that writes one message in one version.

As in `reader`, a message is one function with its structures as inline loops. Neighbouring fixed-size values, and the
length that follows them, are packed by one precompiled `struct.Struct`; the empty tagged section at the end of most
structures is a pad byte (`x`) of the same call. The response of `DeleteRecords` version 2 becomes (shortened):

    def write(m0, out):
        items1 = m0.topics
        n = len(items1) + 1
        if n < 128:
            out += pack0(m0.throttle_time_ms, n)              # '>iB'
        else:
            out += pack1(m0.throttle_time_ms)
            out += uvarint(n)
        for m1 in items1:
            text = m1.name.encode()
            n = len(text) + 1
            ...
            out += text
            ...
            for m2 in items2:
                out += pack2(m2.partition_index, m2.low_watermark, m2.error_code)     # '>iqhx'
            out += b'\\0'
        ...

A value of the wrong type or out of range is a bug of the caller, and raises Python's own exception.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from skylog.protocol.codec import FunctionSource
from skylog.protocol.fields import Array, Blob, FieldSpec, Id, Kind, Scalar, Structure, Text, field_specs
from skylog.protocol.primitives import append_tagged_fields, uvarint


class EncodedItems(list[Any]):
    """The encoded items of an array of structures, as `bytes` each, instead of the structures.

    Only for arrays that are fields of the message itself. Writing joins them, which is fast if items seldom change.
    """


_NAMES: dict[str, object] = {
    "EncodedItems": EncodedItems,
    "append_tags": append_tagged_fields,
    "pack": struct.pack,
    "uvarint": uvarint,
}


def make_writer(cls: type, version: int, flexible: bool) -> Callable[..., Any]:
    """Return `write(message, out)` for one version of `cls`; it appends to the bytearray `out`."""
    return _WriterSource(cls, version, flexible).function()


def writer_source(cls: type, version: int, flexible: bool) -> str:
    """Return the source of that function, for debugging."""
    return _WriterSource(cls, version, flexible).source.text


class _WriterSource:
    """Generates the lines of the writer.

    `_run` holds fixed-size values that no line has written yet, as (struct code, expression). It is flushed before
    anything else is written, and at the boundaries of loops and branches.
    """

    def __init__(self, cls: type, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._title = f"{cls.__name__} v{version}"
        self._run: list[tuple[str, str]] = []
        self._depth = 0
        self._out = "out"
        self.source = FunctionSource("write(m0, out)", _NAMES)
        self._structure(cls, "m0")
        self._flush()
        self.source.line("return None")

    def function(self) -> Callable[..., Any]:
        return self.source.compile(f"write {self._title}")

    def _structure(self, cls: type, name: str) -> None:
        """Write the fields of the object in the variable `name`; the last ones may stay in the run."""
        present = [spec for spec in field_specs(cls) if self._version in spec.versions]
        for spec in present:
            if spec.tag is None:
                self._value(spec.kind, f"{name}.{spec.name}", self._version in spec.nullable)
        if self._flexible:
            tagged = [spec for spec in present if spec.tag is not None]
            if tagged:
                self._tagged_section(sorted(tagged, key=lambda spec: spec.tag or 0), name)
            else:
                self._run.append(("x", ""))

    def _value(self, kind: Kind, value: str, nullable: bool) -> None:
        match kind:
            case Scalar():
                self._run.append((kind.code, value))
            case Id():
                self._run.append(("16s", f"{value}.bytes"))
            case Text():
                self._prefixed("h", "text", value, nullable, encode=".encode()", null="b''")
                self.source.line(f"{self._out} += text")
            case Blob():
                self._prefixed("i", "data", value, nullable, null="b''")
                self.source.line(f"{self._out} += data")
            case Array():
                self._array(kind.item, value, nullable)
            case Structure():
                self._structure_field(kind.cls, value, nullable)

    def _structure_field(self, cls: type, value: str, nullable: bool) -> None:
        """Write a structure. A nullable one follows an int8: -1 for null, else 1."""
        self._depth += 1
        name = f"m{self._depth}"
        self.source.line(f"{name} = {value}")
        if nullable:
            self._flush()
            with self.source.block(f"if {name} is None:"):
                self.source.line(f"{self._out} += b'\\xff'")
            with self.source.block("else:"):
                self.source.line(f"{self._out} += b'\\1'")
                self._structure(cls, name)
                self._flush()
        else:
            self._structure(cls, name)
        self._depth -= 1

    def _array(self, item: Kind, value: str, nullable: bool) -> None:
        source = self.source
        self._depth += 1
        items = f"items{self._depth}"
        self._prefixed("i", items, value, nullable, null="()")
        if isinstance(item, Scalar):
            source.line(f"{self._out} += pack(f'>{{len({items})}}{item.code}', *{items})")
        elif isinstance(item, Structure) and self._depth == 1:
            with source.block(f"if type({items}) is EncodedItems:"):
                source.line(f"{self._out} += b''.join({items})")
            with source.block("else:"):
                self._items(item, items)
        else:
            self._items(item, items)
        self._depth -= 1

    def _items(self, item: Kind, items: str) -> None:
        name = f"m{self._depth}"
        with self.source.block(f"for {name} in {items}:"):
            if isinstance(item, Structure):
                self._structure(item.cls, name)
            else:
                self._value(item, name, nullable=False)
            self._flush()

    def _prefixed(self, code: str, name: str, value: str, nullable: bool, null: str, encode: str = "") -> None:
        """Assign `value` to the variable `name` and write its length, with the run before it.

        In compact form the length on the wire is one more than the real one, and 0 is null.
        """
        source = self.source
        length = f"len({name}) + 1" if self._flexible else f"len({name})"
        source.line(f"{name} = {value}" if nullable else f"{name} = {value}{encode}")
        if nullable:
            with source.block(f"if {name} is None:"):
                source.line(f"{name} = {null}")
                source.line("n = 0" if self._flexible else "n = -1")
            with source.block("else:"):
                if encode:
                    source.line(f"{name} = {name}{encode}")
                source.line(f"n = {length}")
        else:
            source.line(f"n = {length}")
        if not self._flexible:
            self._run.append((code, "n"))
            self._flush()
            return
        run, self._run = self._run, []
        with source.block("if n < 128:"):
            self._pack([*run, ("B", "n")])
        with source.block("else:"):
            self._pack(run)
            source.line(f"{self._out} += uvarint(n)")

    def _tagged_section(self, tagged: list[FieldSpec], name: str) -> None:
        """Write the tagged section. It is usually empty: one test decides whether a list of fields is built."""
        source = self.source
        self._flush()
        tests = [self._differs(spec, f"{name}.{spec.name}") for spec in tagged]
        with source.block(f"if {' or '.join(tests)}:"):
            source.line(f"tags_{name} = []")
            outer, self._out = self._out, f"tag_{name}"
            for spec, test in zip(tagged, tests, strict=True):
                with source.block(f"if {test}:"):
                    source.line(f"tag_{name} = bytearray()")
                    self._value(spec.kind, f"{name}.{spec.name}", self._version in spec.nullable)
                    self._flush()
                    source.line(f"tags_{name}.append(({spec.tag}, tag_{name}))")
            self._out = outer
            source.line(f"append_tags({outer}, tags_{name})")
        with source.block("else:"):
            source.line(f"{outer} += b'\\0'")

    def _differs(self, spec: FieldSpec, value: str) -> str:
        """Return an expression that tests whether a tagged field must be sent."""
        if spec.default is None:
            return f"{value} is not None"
        if spec.default == []:
            return value
        if isinstance(spec.default, int | str):
            return f"{value} != {spec.default!r}"
        return f"{value} != {self.source.bind(spec.default, 'D', spec.default)}"

    def _flush(self) -> None:
        run, self._run = self._run, []
        self._pack(run)

    def _pack(self, run: list[tuple[str, str]]) -> None:
        """Write the line that packs `run`."""
        if not run:
            return
        values = [value for code, value in run if code != "x"]
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        if not values:
            self.source.line(f"{self._out} += {bytes(layout.size)!r}")
        else:
            pack = self.source.bind(layout.format, "pack", layout.pack)
            self.source.line(f"{self._out} += {pack}({', '.join(values)})")
