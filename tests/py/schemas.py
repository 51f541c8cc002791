# SPDX-License-Identifier: Apache-2.0
"""Holds what a command printed with --json to its schema (`ulpscope schema`), for the tests of that command: as
JSON Schema has it, and stricter: a member that the schema does not name is an offence."""

import functools
import json
import os
import subprocess
from pathlib import Path

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))
IS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = set("$schema $comment title description type enum const properties required items anyOf".split())
KNOWN.add("additionalProperties")


@functools.cache
def schema_of(command):
    done = subprocess.run([BUILD / "bin" / "ulpscope", "schema", command], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, IS[name])


def of_object(schema, value, where):
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{where} lacks {name}" for name in schema.get("required", ()) if name not in value)
    for name, member in value.items():
        if name in known or isinstance(others, dict):
            yield from offences(known.get(name, others), member, f"{where}.{name}")
        elif known and others is None:
            yield f"{where}.{name} is not in the schema"


def offences(schema, value, where="$"):
    """What is wrong with a value."""
    assert set(schema) <= KNOWN, f"{where}: a keyword that is not understood here: {set(schema) - KNOWN}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(is_type(value, name) for name in types):
        yield f"{where} is {value!r:.60} and no {' or '.join(types)}"
    elif ("enum" in schema and value not in schema["enum"]) or ("const" in schema and value != schema["const"]):
        yield f"{where} is {value!r:.60}: none of the values"
    elif isinstance(value, dict):
        yield from of_object(schema, value, where)
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from offences(schema.get("items", {}), item, f"{where}[{i}]")
    each = [list(offences(s, value, where)) for s in schema.get("anyOf", ())]
    if each and all(each):
        yield from min(each, key=len)


def values_of(printed):
    """One value, or one a line."""
    try:
        return [json.loads(line) for line in printed.splitlines()]
    except ValueError:
        return [json.loads(printed)]


def each(command, printed):
    """The values that a command printed, each of which is what its schema says."""
    values = values_of(printed)
    for value in values:
        found = list(offences(schema_of(command), value))
        assert not found, f"{command}: {found[:5]}"
    return values


def one(command, printed):
    """The one value that a command printed."""
    [value] = each(command, printed)
    return value
