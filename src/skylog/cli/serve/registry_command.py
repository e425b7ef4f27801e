"""The command line and the environment of the registry beside a broker."""

from __future__ import annotations

import sys

from skylog.registry.settings import PASSWORD_VARIABLE, TOKEN_VARIABLE, USER_VARIABLE, RegistrySettings


def registry_command(settings: RegistrySettings) -> list[str]:
    """Return the command line of `skylog registry`: this interpreter, without the working directory in `sys.path`."""
    command = [sys.executable, "-P", "-m", "skylog", "registry", "--bootstrap", settings.bootstrap]
    return [*command, "--host", settings.host, *(["--read-only"] if settings.read_only else [])]


def registry_secrets(settings: RegistrySettings) -> dict[str, str]:
    """Credentials as environment variables: command lines are visible to all users (ps)."""
    secrets = {
        TOKEN_VARIABLE: settings.token,
        USER_VARIABLE: settings.user,
        PASSWORD_VARIABLE: settings.password,
    }
    return {name: value for name, value in secrets.items() if value}
