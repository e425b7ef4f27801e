"""The web console. It connects to the cluster through `client` and depends on no broker internals.

Imports are lazy: `skylog serve` needs the settings, but not the web framework.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skylog.console.app import create_app
    from skylog.console.settings import Settings

__all__ = ["Settings", "create_app"]

_MODULES: Final = {"Settings": "settings", "create_app": "app"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
