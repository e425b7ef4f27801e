"""CRC-32C, the checksum of batches and files, from the package `crc32c`.

Only the package's extension module is loaded. The rest of it looks up its own version with `importlib.metadata`, which
takes a tenth of a broker's start, and memory.
"""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from crc32c import crc32c

_PACKAGE: Final = "crc32c"
_EXTENSION: Final = "crc32c._crc32c"


def _load_extension() -> bool:
    """Load the extension module without its package. Return False if it is not where it is expected."""
    package = PathFinder.find_spec(_PACKAGE)
    found = package and PathFinder.find_spec(_EXTENSION, package.submodule_search_locations)
    if not found or found.loader is None:
        return False
    extension = module_from_spec(found)
    found.loader.exec_module(extension)
    sys.modules[_EXTENSION] = extension
    return True


if not TYPE_CHECKING:
    if _EXTENSION in sys.modules or _load_extension():
        crc32c = sys.modules[_EXTENSION].crc32c
    else:
        from crc32c import crc32c

__all__ = ["crc32c"]
