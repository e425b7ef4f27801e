"""JAAS settings: `org.apache.kafka….PlainLoginModule required username="a" password="b" user_a="b";`."""

from __future__ import annotations

import re

from skylog.errors import ConfigError

_MODULE = re.compile(r"\s*(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);\s*", re.S)
_OPTION = re.compile(r"""\s+([\w.\-@]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'([^']*)'|([^\s;"']+))""", re.S)
_USER = "user_"


def parse_jaas(text: str) -> dict[str, str]:
    """Return the options of a login module. Raises ConfigError, without the text, which has secrets."""
    match = _MODULE.fullmatch(text)
    if match is None:
        raise ConfigError('sasl.jaas.config: expected MODULE required key="value" …;')
    options: dict[str, str] = {}
    position = 0
    while match["options"][position:].strip():
        found = _OPTION.match(match["options"], position)
        if found is None:
            raise ConfigError('sasl.jaas.config: expected MODULE required key="value" …;')
        key, quoted, single, bare = found.groups()
        options[key] = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else (single or bare or "")
        position = found.end()
    return options


def plain_users(options: dict[str, str]) -> dict[str, str]:
    """Return the passwords by user that the options `user_NAME` give."""
    return {key.removeprefix(_USER): value for key, value in options.items() if key.startswith(_USER)}


def check_jaas(text: str) -> str | None:
    try:
        parse_jaas(text)
    except ConfigError:
        return 'expected MODULE required key="value" …;'
    return None
