"""The published JSON schema of traces, made from the types that read them.

The schema describes one line of a trace: a header or an op. `python -m treedrift.harness.schema`
prints it; `docs/trace.schema.json` is that output, and a test keeps the two equal.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from .ops import AnyOp
from .trace import FORMAT_VERSION, MAX_ANSWER, MAX_BLOCK_ID, NODE_REF, Header

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_TOKEN = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
_ANSWER = {"type": "integer", "minimum": 0, "maximum": MAX_ANSWER}
_RUN = {"prefixItems": [_TOKEN, {"type": "integer", "minimum": 1}]}
_BLOCK = {"type": "integer", "minimum": 0, "maximum": MAX_BLOCK_ID}
_NODE = {"type": "string", "pattern": f"^(?:{NODE_REF.pattern})$"}


def trace_schema() -> dict[str, Any]:
    """The schema of one line of a trace of the current version."""
    kinds = [Header, AnyOp]
    (header, op), parts = msgspec.json.schema_components(kinds, ref_template="#/$defs/{name}")
    for part in parts.values():
        part.pop("title", None)
        part["description"] = part["description"].partition("\n\n")[0].replace("\n", " ")
        _describe_operands(part["properties"])
    properties = parts["Header"]["properties"]
    properties["version"] = {"const": FORMAT_VERSION}
    # The configuration has its own defaults; the header need not say them again.
    properties["config"].pop("default", None)
    return {
        "$schema": _DIALECT,
        "title": f"One line of a treedrift trace, version {FORMAT_VERSION}",
        "description": "The first line is a header, every other one an op.",
        "anyOf": [header, *op["anyOf"]],
        "$defs": dict(sorted(parts.items())),
    }


def _describe_operands(properties: dict[str, Any]) -> None:
    """Say what the reader checks beyond the types: node references and ranges."""
    for name in ("node", "until"):
        if name in properties:
            properties[name] = properties[name] | _NODE
    if "nodes" in properties:
        properties["nodes"]["items"] = _NODE
    if "tokens" in properties:
        properties["tokens"]["items"] = _TOKEN
    if "runs" in properties:
        properties["runs"]["items"] |= _RUN
    if "answer" in properties:
        properties["answer"]["anyOf"] = [_ANSWER, {"type": "null"}]
    if "blocks" in properties:
        properties["blocks"]["items"] = _BLOCK


def schema_text() -> str:
    """The schema as its file holds it."""
    return json.dumps(trace_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(schema_text(), end="")
