"""Generates the function that reads one message in one version.

The whole message becomes one function: nested structures are inline loops, without a call per structure. Neighbouring
fixed-size values, including the length that follows them, are read by one precompiled `struct.Struct`. The request
`DeleteRecords` version 2 becomes (shortened):

    def read(buf, pos):
        end = len(buf)
        try:
            m0 = new(C0)
            n = buf[pos]                                    # compact count of topics, one more than there are
            pos += 1
            if n > 127:
                n, pos = uvarint_rest(buf, pos, n)
            if not n:
                raise Malformed('DeleteRecordsRequest v2: topics is null')
            n -= 1
            if n * 3 > end - pos:                           # a topic takes three bytes at least
                raise Malformed('DeleteRecordsRequest v2: topics has more items than bytes')
            m0.topics = items1 = []
            for _ in range(n):
                m1 = new(C1)
                n = buf[pos]
                ...
                stop = pos + n - 1
                m1.name = str(buf[pos:stop], 'utf-8')
                pos = stop
                ...
                    m2.partition_index, m2.offset, n = unpack0(buf, pos)     # '>iqB', n counts the tagged fields
                    pos += 13
                    if n:
                        pos = skip_tags(buf, pos, n)
                    items2.append(m2)
                ...
        except (IndexError, StructError):
            raise Malformed('DeleteRecordsRequest v2: the input ends too early') from None
        ...
        if pos > end:
            raise Malformed('DeleteRecordsRequest v2: the input ends too early')
        return m0, pos

A slice beyond the end is no error in Python, so `pos` may be past the end after a string with a wrong length. Then
every later access fails, or the last check does, before anything is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from skylog.errors import MalformedRequestError
from skylog.protocol.codec import FunctionSource
from skylog.protocol.fields import (
    Array,
    Blob,
    FieldSpec,
    Id,
    Kind,
    Scalar,
    Structure,
    Text,
    field_specs,
    min_size,
)
from skylog.protocol.primitives import (
    read_uvarint,
    read_uvarint_rest,
    skip_tagged_fields,
    uuid_from_bytes,
)

_NAMES: dict[str, object] = {
    "Malformed": MalformedRequestError,
    "StructError": struct.error,
    "new": object.__new__,
    "skip_tags": skip_tagged_fields,
    "unpack_from": struct.unpack_from,
    "uuid": uuid_from_bytes,
    "uvarint": read_uvarint,
    "uvarint_rest": read_uvarint_rest,
}


def make_reader(cls: type, version: int, flexible: bool) -> Callable[..., Any]:
    """Return `read(buf, pos) -> (message, pos)` for one version of `cls`."""
    return _ReaderSource(cls, version, flexible).function()


def reader_source(cls: type, version: int, flexible: bool) -> str:
    """Return the source of that function, for debugging."""
    return _ReaderSource(cls, version, flexible).source.text


MAX_STRING_BYTES: Final = 0x7FFF


class _ReaderSource:
    """Generates the lines of the reader.

    `_run` holds fixed-size values that no line has read yet, as (struct code, target). Code that needs one of them, or
    writes a line that moves `pos`, flushes it first.
    """

    def __init__(self, cls: type, version: int, flexible: bool) -> None:
        self._version = version
        self._flexible = flexible
        self._title = f"{cls.__name__} v{version}"
        self._run: list[tuple[str, str]] = []
        self._depth = 0
        self.source = FunctionSource("read(buf, pos)", _NAMES)
        self._function(cls)

    def function(self) -> Callable[..., Any]:
        return self.source.compile(f"read {self._title}")

    def _function(self, cls: type) -> None:
        source = self.source
        source.line("end = len(buf)")
        if _has_view(Structure(cls), self._version):
            source.line("view = memoryview(buf)")
        with source.block("try:"):
            self._structure(cls, "m0", "")
        with source.block("except (IndexError, StructError):"):
            self._malformed("the input ends too early", " from None")
        with source.block("except UnicodeDecodeError:"):
            self._malformed("a string is not UTF-8", " from None")
        self._refuse("pos > end", "the input ends too early")
        source.line("return m0, pos")

    def _structure(self, cls: type, target: str, path: str) -> None:
        """Create an object of `cls` in the variable `target` and fill it."""
        self.source.line(f"{target} = new({self.source.bind(cls, 'C', cls)})")
        tagged = []
        for spec in field_specs(cls):
            if version_tagged := spec.tag is not None and self._version in spec.versions:
                tagged.append(spec)
            if version_tagged or self._version not in spec.versions:
                self.source.line(f"{target}.{spec.name} = {self._default(spec)}")
            else:
                nullable = self._version in spec.nullable
                self._value(spec.kind, f"{target}.{spec.name}", f"{path}{spec.name}", nullable)
        if self._flexible:
            self._tagged_section(tagged, target, path)
        self._flush()

    def _default(self, spec: FieldSpec) -> str:
        if spec.default is None or isinstance(spec.default, int | float | str | bytes | list):
            return repr(spec.default)
        return self.source.bind(spec.default, "D", spec.default)

    def _value(self, kind: Kind, target: str, path: str, nullable: bool) -> None:
        match kind:
            case Scalar():
                self._run.append((kind.code, target))
            case Id():
                self._run.append(("16s", target))
            case Text():
                self._length("h", target, path, nullable, lambda n: self._text(n, target))
            case Blob():
                self._length("i", target, path, nullable, lambda n: self._blob(n, target, kind.view))
            case Array():
                self._length("i", target, path, nullable, lambda n: self._array(n, kind.item, target, path))
            case Structure():
                self._structure_field(kind.cls, target, path, nullable)

    def _structure_field(self, cls: type, target: str, path: str, nullable: bool) -> None:
        """Read a structure. A nullable one follows an int8: negative for null, else 1."""
        if nullable:
            self._run.append(("b", "n"))
        self._flush()
        if nullable:
            with self.source.block("if n < 0:"):
                self.source.line(f"{target} = None")
            with self.source.block("else:"):
                self._structure_content(cls, target, path)
        else:
            self._structure_content(cls, target, path)

    def _structure_content(self, cls: type, target: str, path: str) -> None:
        self._depth += 1
        name = f"m{self._depth}"
        self._structure(cls, name, f"{path}.")
        self.source.line(f"{target} = {name}")
        self._depth -= 1

    def _length(self, code: str, target: str, path: str, nullable: bool, content: Callable[[str], None]) -> None:
        """Read a length, handle null, then call `content` to write the lines for the rest.

        In compact form the length on the wire is one more than the real one, and 0 is null.
        """
        source = self.source
        if self._flexible:
            self._uvarint()
            null, length = "not n", "n - 1"
        else:
            self._run.append((code, "n"))
            self._flush()
            null, length = "n < 0", "n"
        if not nullable:
            self._refuse(null, f"{path} is null")
            content(length)
            return
        with source.block(f"if {null}:"):
            if not self._flexible:
                self._refuse("n != -1", f"{path} has a negative length")
            source.line(f"{target} = None")
        with source.block("else:"):
            content(length)

    def _text(self, length: str, target: str) -> None:
        if self._flexible:  # older forms have 15 bits for the length, and Kafka allows no more in this one
            self._refuse(f"n > {MAX_STRING_BYTES + 1}", f"a string has more than {MAX_STRING_BYTES} bytes")
        self.source.line(f"stop = pos + {length}")
        self.source.line(f"{target} = str(buf[pos:stop], 'utf-8')")
        self.source.line("pos = stop")

    def _blob(self, length: str, target: str, view: bool) -> None:
        self.source.line(f"stop = pos + {length}")
        self.source.line(f"{target} = view[pos:stop]" if view else f"{target} = bytes(buf[pos:stop])")
        self.source.line("pos = stop")

    def _array(self, length: str, item: Kind, target: str, path: str) -> None:
        """Read the items. Their number is checked against the remaining bytes before anything is allocated."""
        source = self.source
        if length != "n":
            source.line("n -= 1")
        size = min_size(item, self._version, self._flexible)
        self._refuse(f"n * {size} > end - pos", f"{path} has more items than bytes")
        if isinstance(item, Scalar):
            source.line(f"{target} = list(unpack_from(f'>{{n}}{item.code}', buf, pos))")
            source.line(f"pos += n * {size}")
            return
        self._depth += 1
        name, items = f"m{self._depth}", f"items{self._depth}"
        source.line(f"{target} = {items} = []")
        with source.block("for _ in range(n):"):
            if isinstance(item, Structure):
                self._structure(item.cls, name, f"{path}.")
            else:
                self._value(item, name, path, nullable=False)
                self._flush()
            source.line(f"{items}.append({name})")
        self._depth -= 1

    def _tagged_section(self, tagged: list[FieldSpec], target: str, path: str) -> None:
        self._uvarint(check=False)
        with self.source.block("if n:"):
            self._long_uvarint()
            if tagged:
                self._tagged_fields(tagged, target, path)
            else:
                self.source.line("pos = skip_tags(buf, pos, n)")

    def _tagged_fields(self, tagged: list[FieldSpec], target: str, path: str) -> None:
        source = self.source
        stop = f"stop_{target}"
        with source.block("for _ in range(n):"):
            source.line("tag, pos = uvarint(buf, pos)")
            source.line("n, pos = uvarint(buf, pos)")
            source.line(f"{stop} = pos + n")
            keyword = "if"
            for spec in tagged:
                with source.block(f"{keyword} tag == {spec.tag}:"):
                    field_path = f"{path}{spec.name}"
                    nullable = self._version in spec.nullable
                    self._value(spec.kind, f"{target}.{spec.name}", field_path, nullable)
                    self._flush()
                    self._refuse(f"pos != {stop}", f"{field_path} does not have the size given by its tag")
                keyword = "elif"
            with source.block("else:"):
                source.line(f"pos = {stop}")

    def _uvarint(self, check: bool = True) -> None:
        """Read a varint into `n`. Its first byte joins the run, because there is seldom a second one."""
        self._run.append(("B", "n"))
        self._flush()
        if check:
            self._long_uvarint()

    def _long_uvarint(self) -> None:
        with self.source.block("if n > 127:"):
            self.source.line("n, pos = uvarint_rest(buf, pos, n)")

    def _flush(self) -> None:
        """Write the lines that read the pending run."""
        if not self._run:
            return
        run, self._run = self._run, []
        layout = struct.Struct(">" + "".join(code for code, _ in run))
        if len(run) == 1 and run[0][0] == "B":
            self.source.line(f"{run[0][1]} = buf[pos]")
        else:
            unpack = self.source.bind(layout.format, "unpack", layout.unpack_from)
            targets = ", ".join(target for _, target in run)
            self.source.line(f"{targets}{',' if len(run) == 1 else ''} = {unpack}(buf, pos)")
        self.source.line(f"pos += {layout.size}")
        for code, target in run:
            if code == "16s":
                self.source.line(f"{target} = uuid({target})")

    def _refuse(self, condition: str, reason: str) -> None:
        with self.source.block(f"if {condition}:"):
            self._malformed(reason)

    def _malformed(self, reason: str, suffix: str = "") -> None:
        self.source.line(f"raise Malformed({f'{self._title}: {reason}'!r}){suffix}")


def _has_view(kind: Kind, version: int) -> bool:
    match kind:
        case Blob():
            return kind.view
        case Array():
            return _has_view(kind.item, version)
        case Structure():
            return any(version in spec.versions and _has_view(spec.kind, version) for spec in field_specs(kind.cls))
        case _:
            return False
