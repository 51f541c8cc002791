# SPDX-License-Identifier: Apache-2.0
"""Writes the pages of docs/reference that are made: cli.md of the program's own tables (`ulpscope help --markdown`),
python-api.md of the docstrings of what `ulpscope` exports. Run by `./run docs`; tests/py/test_docs.py holds both to be
current. Needs the built environment."""

import dataclasses
import inspect
import re
import subprocess
from pathlib import Path

import ulpscope

PAGES = Path(__file__).resolve().parents[1] / "reference"
HEAD = """# The Python reference

Made of the docstrings by `./run docs`. How these are used: [verdicts from Python](python.md).
"""


def signature(thing):
    """Names and defaults; of a dataclass, whose docstring does not name its fields, types as well."""
    try:
        said = inspect.signature(thing)
        if not dataclasses.is_dataclass(thing):
            bare = [p.replace(annotation=p.empty) for p in said.parameters.values()]
            said = said.replace(parameters=bare, return_annotation=said.empty)
        quoted = re.sub(r"(: |-> )'([^']*)'", r"\1\2", str(said))
        return re.sub(r" at 0x[0-9a-f]+", "", quoted)
    except (TypeError, ValueError):
        return ""


def text_of(thing):
    """Its docstring; what is indented in it is code."""
    lines, block = [], False
    for line in (inspect.getdoc(thing) or "").splitlines():
        inside = line.startswith("    ") or (block and not line.strip())
        if inside and not block:
            lines.append("```")
        elif block and not inside:
            while not lines[-1]:
                lines.pop()
            lines += ["```", ""]
        block = inside
        lines.append(line)
    return "\n".join([*lines, "```"] if block else lines)


def members(thing):
    """Methods and properties that a class itself documents."""
    for name, member in vars(thing).items():
        if name.startswith("_"):
            continue
        member = getattr(member, "__func__", member)
        if inspect.getdoc(member) and (callable(member) or isinstance(member, property)):
            yield name, member


def section(name, thing):
    if inspect.ismodule(thing):
        first, _, rest = text_of(thing).partition("\n\n")
        lines = [f"## `ulpscope.{name}`", first + ("\n\n" + rest if rest else "")]
        for key in getattr(thing, "__all__", ()):
            lines += [f"### `{name}.{key}{signature(getattr(thing, key))}`", text_of(getattr(thing, key))]
        return "\n\n".join(line for line in lines if line)
    lines = [f"## `ulpscope.{name}{signature(thing)}`", text_of(thing)]
    if inspect.isclass(thing):
        lines += [f"- `.{key}{signature(m)}`: " + " ".join(inspect.getdoc(m).split()) for key, m in members(thing)]
    return "\n\n".join(line for line in lines if line)


def python():
    names = [n for n in ulpscope.__all__ if not n.startswith("_")]
    return HEAD + "\n" + "\n\n".join(section(n, getattr(ulpscope, n)) for n in sorted(names, key=str.lower)) + "\n"


def commands():
    return subprocess.run(["ulpscope", "help", "--markdown"], capture_output=True, text=True, check=True).stdout


MADE = {"cli.md": commands, "python-api.md": python}

if __name__ == "__main__":
    for page, make in MADE.items():
        (PAGES / page).write_text(make())
