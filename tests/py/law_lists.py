# SPDX-License-Identifier: Apache-2.0
"""What the laws with lists are made of: tests/laws/NAME.txt says what offends today, a line each. `python
tests/py/law_lists.py` takes out what no longer does; its diff shows what was added, which nothing should be."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "ulpscope"
LISTS = ROOT / "tests" / "laws"


class Lists:
    """Whether they are held, or written anew."""

    rewrites = False


def entries(name: str) -> list[str]:
    return [line for line in (LISTS / f"{name}.txt").read_text().splitlines() if line and not line.startswith("#")]


def held(name: str, found) -> None:
    """That what offends is what the list says."""
    said = Counter(line.partition(" : ")[0] for line in entries(name))
    new, gone = sorted((Counter(found) - said).elements()), sorted((said - Counter(found)).elements())
    if Lists.rewrites:
        return rewrite(name, lambda line: line.partition(" : ")[0] not in gone, new)
    assert not new, f"tests/laws/{name}.txt lacks, and should not get: {new}"
    assert not gone, f"take out of tests/laws/{name}.txt: {gone}"


def at_most(name: str, found: Counter) -> None:
    """That no file has more than the list says of files of that name, and none is listed that has none."""
    said = {file: int(n) for file, n in map(str.split, entries(name))}
    more = {file: (n, said.get(file, 0)) for file, n in found.items() if n > said.get(file, 0)}
    if Lists.rewrites:
        return rewrite(name, lambda line: False, [f"{file} {n}" for file, n in found.items() if n])
    assert not more, f"more than tests/laws/{name}.txt has, which may only shrink: {more}"
    gone = [file for file in said if not found[file]]
    assert not gone, f"take out of tests/laws/{name}.txt: {gone}"


def rewrite(name: str, stays, new) -> None:
    lines = (LISTS / f"{name}.txt").read_text().splitlines()
    kept = [line for line in lines if not line or line.startswith("#") or stays(line)]
    (LISTS / f"{name}.txt").write_text("\n".join([*kept, *sorted(new)]) + "\n")


def files(folder: str, *endings: str) -> list[Path]:
    return sorted(p for p in (ROOT / folder).rglob("*") if p.suffix in endings and "build" not in p.parts)


def tally(folders, count, *endings) -> Counter:
    found = Counter()
    for folder in folders:
        for path in files(folder, *endings):
            found[path.name] += count(path.read_text())
    return found


if __name__ == "__main__":
    import law_lists
    import test_law_lists
    import test_law_lists_c
    import test_typing

    law_lists.Lists.rewrites = True
    for module in (test_law_lists, test_law_lists_c):
        for law in [law for name, law in sorted(vars(module).items()) if name.startswith("test_")]:
            law()
    test_typing.test_typed_files_stay_typed()
