"""A place in a JSON Schema, with what it takes to follow its references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urljoin

from jsonschema_specifications import REGISTRY
from referencing import Registry, Specification
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT4, DRAFT6, DRAFT7, DRAFT201909, DRAFT202012

Raw = Any
"""A schema as JSON: an object, true or false."""

DRAFTS: Final[Mapping[str, tuple[int, Specification[Raw]]]] = {
    "http://json-schema.org/draft-04/schema": (4, DRAFT4),
    "http://json-schema.org/draft-06/schema": (6, DRAFT6),
    "http://json-schema.org/draft-07/schema": (7, DRAFT7),
    "https://json-schema.org/draft/2019-09/schema": (2019, DRAFT201909),
    "https://json-schema.org/draft/2020-12/schema": (2020, DRAFT202012),
}
"""The number and the rules of each draft, by its address."""
_DEFAULT: Final = (7, DRAFT7)
_REFERENCES: Final = ("$ref", "$recursiveRef", "$dynamicRef")


def draft_of(raw: Raw, default: tuple[int, Specification[Raw]] = _DEFAULT) -> tuple[int, Specification[Raw]]:
    """The draft that a schema names. Draft 7, as in the registry's clients, if it names none."""
    named = raw.get("$schema") if isinstance(raw, dict) else None
    return DRAFTS.get(named.rstrip("#"), default) if isinstance(named, str) else default


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A schema within a schema."""

    raw: Raw
    draft: int
    rules: Specification[Raw]
    resolver: Any
    """Finds what a reference from here means (a resolver of `referencing`)."""

    def child(self, raw: Raw) -> Node:
        """The node of a schema within this one."""
        draft, rules = draft_of(raw, (self.draft, self.rules))
        return Node(raw, draft, rules, self.resolver.in_subresource(rules.create_resource(raw)))

    @property
    def references(self) -> list[str]:
        """The references that stand here. Up to draft 7 a $ref hides what stands beside it."""
        if not isinstance(self.raw, dict):
            return []
        words = _REFERENCES if self.draft > 7 else _REFERENCES[:1]
        return [self.raw[word] for word in words if isinstance(self.raw.get(word), str)]

    def follow(self, reference: str) -> Node:
        """The node that a reference from here leads to. Raises LookupError if there is none."""
        try:
            found = self.resolver.lookup(reference)
        except Unresolvable:
            raise LookupError(reference) from None
        draft, rules = draft_of(found.contents, (self.draft, self.rules))
        return Node(found.contents, draft, rules, found.resolver)


def root_node(raw: Raw, references: Mapping[str, Raw]) -> Node:
    """The node of a whole schema. References are found by their name, beside the schema's own id, and by their id."""
    draft, rules = draft_of(raw)
    own = rules.create_resource(raw)
    base = own.id() or ""
    registry: Registry[Raw] = REGISTRY
    for name, referred in references.items():
        resource = draft_of(referred, (draft, rules))[1].create_resource(referred)
        uris = {name, urljoin(base, name), resource.id() or name}
        registry = registry.with_resources((uri, resource) for uri in uris)
    return Node(raw, draft, rules, registry.with_resource(base, own).crawl().resolver(base))
