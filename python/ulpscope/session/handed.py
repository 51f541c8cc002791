# SPDX-License-Identifier: Apache-2.0
"""References that a running program registered, on their way to the process that judges what it does: as
code with what that refers to (`causes.parcel`), so that nothing of the program is run again. A function
that cannot go so is found in its module over there, unless that is the script itself."""

from __future__ import annotations

import io
import pickle
import sys
from typing import Any

from ..calls.foreign import foreign, theirs
from ..calls.functions import references
from ..calls.homes import import_it, operator, told
from ..causes import parcel


def put(op: str, path: str) -> str:
    """Writes the reference of `op` into a file for `take`; a sentence where it cannot be handed over."""
    function = references[op]
    content = {"op": op, "schema": _schema(op), "function": function}
    problem = _written(content, path)
    if not problem:
        return ""
    module, name = getattr(function, "__module__", ""), getattr(function, "__qualname__", "<locals>")
    file = getattr(sys.modules.get(module), "__file__", None)
    if module in ("", "__main__") or "<locals>" in name or _written(content | {"function": (module, file, name)}, path):
        return (
            f"the reference of {op} cannot be handed to the process that judges ({problem}): put it into a "
            'file of its own and name that, live_check(imports=["FILE.py"])'
        )
    return ""


def _written(content: dict[str, Any], path: str) -> str:
    try:
        file = io.BytesIO()
        pickler = parcel.Pickler(file)
        theirs(pickler.dump, content)
        buffers = [bytes(b) for b in pickler.buffers]
    except Exception as problem:  # whatever its globals and cells are
        foreign(problem)
        return f"{type(problem).__name__}: {problem}"[:200]
    with open(path, "wb") as out:
        pickle.dump((file.getvalue(), buffers), out)
    return ""


def take(path: str) -> None:
    """Registers here what `put` wrote, with the schema of its operator, which may be one that nobody brings."""
    with open(path, "rb") as file:
        data, buffers = pickle.load(file)
    content = pickle.loads(data, buffers=[bytearray(b) for b in buffers])
    op, function = content["op"], content["function"]
    if isinstance(function, tuple):
        function = _found(*function)
    if content["schema"]:
        told[op] = content["schema"]
    references[op] = function


def _found(module: str, file: str | None, name: str) -> Any:
    import_it(module if module in sys.modules or file is None else file)
    found = sys.modules.get(module) or sys.modules[(file or "").rpartition("/")[2].removesuffix(".py")]
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _schema(op: str) -> str:
    found: Any = operator(op) if "::" in op else None
    return str(found._schema) if found is not None else ""
