"""How settings are declared, read from text, and refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import pytest

from skylog.config import find, parse, read_properties, setting, settings
from skylog.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Example:
    size_bytes: int = setting("size.bytes", 100, "A size.", kind="int", minimum=14, maximum=1_000_000)
    wait_ms: int = setting("wait.ms", -1, "A time.", minimum=-1, broker_key="log.wait.ms")
    share: float = setting("share", 0.5, "A share.", minimum=0, maximum=1)
    enabled: bool = setting("enabled", False, "A switch.")
    policy: tuple[str, ...] = setting("policy", ("delete",), "A list.", choices=("delete", "compact"))
    name: str = setting("name", "", "A text.")
    not_a_setting: int = 7


def test_defaults_apply_to_keys_that_are_not_given() -> None:
    assert parse(Example, {}) == Example()


def test_each_kind_is_read_from_text() -> None:
    values = {
        "size.bytes": " 20 ",
        "wait.ms": "9000000000",
        "share": "1e-1",
        "enabled": "TRUE",
        "policy": "compact, delete",
        "name": "a b",
    }
    assert parse(Example, values) == Example(
        size_bytes=20, wait_ms=9_000_000_000, share=0.1, enabled=True, policy=("compact", "delete"), name="a b"
    )


def test_a_list_may_be_empty() -> None:
    assert parse(Example, {"policy": ""}).policy == ()


def test_keys_that_are_not_given_come_from_the_base() -> None:
    base = Example(size_bytes=50, name="x")
    assert parse(Example, {"name": "y"}, base) == Example(size_bytes=50, name="y")
    assert base.name == "x"


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("size.bytes", "13", "at least 14"),
        ("size.bytes", "1000001", "at most 1000000"),
        ("size.bytes", "2147483648", "whole number of 32 bits"),
        ("size.bytes", "1_000", "whole number"),
        ("size.bytes", "٣٤٥", "whole number"),
        ("size.bytes", "1.5", "whole number"),
        ("size.bytes", "", "whole number"),
        ("wait.ms", "-2", "at least -1"),
        ("wait.ms", "9223372036854775808", "whole number of 64 bits"),
        ("share", "nan", "a number"),
        ("share", "inf", "a number"),
        ("share", "half", "a number"),
        ("share", "1.01", "at most 1"),
        ("enabled", "yes", "true or false"),
        ("policy", "delete,shred", "one of delete, compact"),
    ],
)
def test_an_invalid_value_is_refused_with_its_key_and_what_is_expected(key: str, text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(Example, {key: text})
    assert str(caught.value).startswith(f"{key}={text}: ")
    assert expected in str(caught.value)


def test_an_unknown_key_is_refused_with_the_nearest_known_one() -> None:
    with pytest.raises(ConfigError, match=r"unknown configuration key 'size\.byte'; did you mean 'size\.bytes'\?"):
        parse(Example, {"size.byte": "20"})
    with pytest.raises(ConfigError, match=r"unknown configuration key 'zzz'$"):
        find(Example, "zzz")
    with pytest.raises(ConfigError, match="not_a_setting"):
        find(Example, "not_a_setting")


def test_the_declaration_of_a_setting_can_be_found() -> None:
    known = settings(Example)
    assert list(known) == ["size.bytes", "wait.ms", "share", "enabled", "policy", "name"]
    wait = known["wait.ms"]
    assert (wait.field, wait.kind, wait.default, wait.doc, wait.broker_key) == (
        "wait_ms",
        "long",
        -1,
        "A time.",
        "log.wait.ms",
    )
    assert [known[key].kind for key in known] == ["int", "long", "double", "boolean", "list", "string"]


def test_values_are_printed_as_they_are_read() -> None:
    example = Example(policy=("compact", "delete"), enabled=True)
    printed = {key: known.format(getattr(example, known.field)) for key, known in settings(Example).items()}
    assert printed["policy"] == "compact,delete"
    assert printed["enabled"] == "true"
    assert parse(Example, printed) == example


def test_configurations_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Example().name = "x"  # type: ignore[misc]  # that it cannot be done is the point


def test_properties_are_read_with_comments_and_spaces() -> None:
    text = "# comment\n! another\n\n  a.b = 1 \nurl=x=y\nempty=\n"
    assert read_properties(text) == {"a.b": "1", "url": "x=y", "empty": ""}


def test_a_line_that_is_no_property_is_named() -> None:
    with pytest.raises(ConfigError) as raised:
        read_properties("key=-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMG\n")
    assert str(raised.value) == "line 2: expected key=value"  # without the line, which may be secret
