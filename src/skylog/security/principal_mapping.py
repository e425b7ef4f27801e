"""Principals from certificates: the distinguished name, and the rules that shorten it (`ssl.principal.mapping.rules`).

The distinguished name has the form of RFC 2253, as in Kafka: the last part of the subject comes first, and characters
with a meaning are escaped, so the value of one part cannot pose as another part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from skylog.errors import ConfigError

_KEYWORDS: Final = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
_DEFAULT: Final = "DEFAULT"
_RULE = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)", re.DOTALL)
_BETWEEN_RULES = re.compile(r",\s*(?=RULE:|DEFAULT)")  # a rule may have commas in it
_JAVA_GROUP = re.compile(r"\\(.)|\$(\d+)|(\\$)")

Mapper = Callable[[str], str]


def distinguished_name(certificate: Mapping[str, Any]) -> str:
    """Return the subject of a certificate, given in the form of `ssl.SSLSocket.getpeercert`."""
    return ",".join(
        "+".join(f"{_KEYWORDS.get(name, name)}={_escape(value)}" for name, value in relative)
        for relative in reversed(certificate.get("subject", ()))
    )


def _escape(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if len(value) > 1 and value.endswith(" ") else text


def mapper(rules_text: str) -> Mapper:
    """Return the function that applies the rules. Raises ConfigError if one is invalid."""
    rules: list[tuple[re.Pattern[str], str, str] | None] = []
    for text in _BETWEEN_RULES.split(rules_text.strip()):
        if text == _DEFAULT:
            rules.append(None)
            continue
        match = _RULE.fullmatch(text)
        if match is None:
            raise ConfigError(f"expected RULE:pattern/replacement/[LU] or DEFAULT, found {text}")
        try:
            pattern, replacement = re.compile(match[1].replace("\\/", "/")), match[2].replace("\\/", "/")
        except re.error as error:
            raise ConfigError(f"{text} has no valid pattern: {error}") from None
        if any(int(number or 0) > pattern.groups for _, number, _ in _JAVA_GROUP.findall(replacement)):
            raise ConfigError(f"{text} refers to a group that its pattern does not have")
        rules.append((pattern, replacement, match[3]))

    def apply(name: str) -> str:
        for rule in rules:
            if rule is None:
                return name
            pattern, replacement, case = rule
            found = pattern.fullmatch(name)
            if found is not None:
                mapped = _expand(found, replacement)
                return mapped.lower() if case == "L" else mapped.upper() if case == "U" else mapped
        raise ConfigError(f"no rule of ssl.principal.mapping.rules applies to {name}")

    return apply


def _expand(found: re.Match[str], replacement: str) -> str:
    """Replace $1 and so on by the groups, as Java does."""

    def group(reference: re.Match[str]) -> str:
        return reference[1] if reference[1] is not None else (found[int(reference[2])] or "")

    return _JAVA_GROUP.sub(group, replacement)


def check_rules(text: str) -> str | None:
    try:
        mapper(text)
    except ConfigError as error:
        return str(error)
    return None
