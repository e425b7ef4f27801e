"""Compiles .proto texts with protoc, which comes with grpcio-tools and runs in this process.

protoc reads files, so the texts lie in a temporary directory for the milliseconds that it takes.
"""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import _protoc_compiler, protoc

from skylog.schemas.schema import InvalidSchema

MAIN: Final = "skylog_schema_to_compile.proto"
"""The name of the schema itself among the files that are compiled."""

_PROTO2: Final = 'syntax = "proto2";\n'
"""Put before a text that does not name its syntax, about which protoc would print a warning."""
_SYNTAX: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*(?:syntax|edition)\b", re.DOTALL)

warnings.simplefilter("ignore", _protoc_compiler.ProtocWarning)  # an import that is not used is no reason to refuse


def compile_files(texts: Mapping[str, str], wanted: Iterable[str]) -> list[FileDescriptorProto]:
    """The descriptors of the wanted files and of all that they import, each after what it imports.

    Imports are found among `texts`, and among the files that every schema may import. Raises InvalidSchema.
    """
    names = list(wanted)
    unnamed = {name for name, text in texts.items() if not _SYNTAX.match(text)}
    with tempfile.TemporaryDirectory(prefix="skylog-protobuf-") as directory:
        folder = Path(directory)
        for name, text in texts.items():
            path = folder / _checked(name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_PROTO2 + text if name in unnamed else text, encoding="utf-8")
        places = [directory, *known_places()]
        for name in names:
            _check(name, places, unnamed)
        result = folder / "descriptors"
        options = [*(f"-I{place}" for place in places), f"--descriptor_set_out={result}", "--include_imports"]
        if names and protoc.main(["protoc", *options, *names]) != 0:
            raise InvalidSchema("protoc refuses the schema; its reason is on the standard error of this process")
        found = FileDescriptorSet.FromString(result.read_bytes()) if names else FileDescriptorSet()
    return list(found.file)


def known_places() -> Sequence[str]:
    """Folders with the files that every schema may import: google/protobuf, google/type, confluent."""
    places = [str(Path(protoc.__file__).parent / "_proto"), str(Path(__file__).parent / "known")]
    types = find_spec("google.type")
    if types is not None and types.submodule_search_locations:
        places.append(str(Path(next(iter(types.submodule_search_locations))).parents[1]))
    return places


def _checked(name: str) -> PurePosixPath:
    """A name of an import as a path below a folder."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name or name.startswith("-"):
        raise InvalidSchema(f"{name!r} is not a name that a schema can import; use a path such as shop/order.proto")
    return path


def _check(name: str, places: Sequence[str], unnamed: AbstractSet[str]) -> None:
    """Raise InvalidSchema with the places of mistakes, which protoc's main only prints."""
    try:
        _protoc_compiler.get_protos(name.encode(), [place.encode() for place in places])
    except _protoc_compiler.ProtocErrors as errors:
        found = errors.errors()
        placed = [error for error in found if error.line >= 0]
        raise InvalidSchema("; ".join(_sentence(error, unnamed) for error in (placed or found)[:5])) from None


def _sentence(error: _protoc_compiler.ProtocError, unnamed: AbstractSet[str]) -> str:
    file, message = error.filename.decode(), error.message.decode().rstrip(".")
    line = error.line if file in unnamed else error.line + 1
    place = f"at line {line}, column {error.column + 1}: " if error.line >= 0 else ""
    origin = "" if file == MAIN else f"in the reference {file}: "
    fix = "; add a reference with this name" if message.startswith("Import ") else ""
    return f"{origin}{place}{message}{fix}"
