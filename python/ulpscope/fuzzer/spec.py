# SPDX-License-Identifier: Apache-2.0
"""Examples of calls from specifications: `python -m ulpscope.fuzzer.spec FILE [MODULE...]` makes of each line
of a file one call, or of an operator's name alone as many as its schema and a few probes give, and
keeps them as a trace for `ulpscope fuzz`, in the cache folder. docs/reference/fuzz.md has the form. Needs of torch what
recording needs."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from ..calls.foreign import foreign, theirs
from ..calls.homes import import_modules, operator
from ..calls.replay import is_write
from ..program.capture import Recorder
from ..program.glue import cache_home
from .words import made

VERSION = 1  # of what is recorded here
SHAPES = [(4, 6), (6,), (2, 4, 6), (2, 3, 8, 8), (), (6, 6), (2, 4, 4)]
RANGES = [(-1.0, 1.0), (0.1, 0.9), (1.5, 4.0)]  # the first whose results are numbers is taken
PROBES = 4000  # calls that are tried for one operator
EXAMPLES = 6  # that are kept of one
WORDS = {"op", "args", "kwargs"}
OF_TENSOR = {"shape", "dtype", "range"}


class BadSpec(ValueError):
    """A specification that nothing satisfies; the text says where and why."""


def tensor(given: dict[str, Any], where: str) -> torch.Tensor:
    """The tensor that a specification tells of."""
    unknown = sorted(given.keys() - OF_TENSOR)
    if unknown:
        raise BadSpec(f"{where}: a tensor has shape, dtype and range, not {unknown[0]}")
    shape, name = given.get("shape"), given.get("dtype", "float32")
    if not isinstance(shape, list) or not all(type(n) is int and 0 <= n < 1 << 20 for n in shape):
        raise BadSpec(f"{where}: shape is a list of sizes, e.g. [4, 6], not {shape!r}")
    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise BadSpec(f"{where}: torch has no dtype {name!r}")
    return values(shape, dtype, _range(given, dtype, where))


def _range(given, dtype, where):
    bounds = given.get("range", RANGES[0] if dtype.is_floating_point or dtype.is_complex else [0, 2])
    ok = isinstance(bounds, (list, tuple)) and len(bounds) == 2 and all(isinstance(b, (int, float)) for b in bounds)
    if not ok or not bounds[0] < bounds[1]:
        raise BadSpec(f"{where}: range is [lowest, highest], not {bounds!r}")
    return bounds


def values(shape: Sequence[int], dtype: torch.dtype, bounds: Sequence[float]) -> torch.Tensor:
    """A tensor whose statistics are those of the range: both ends are in it."""
    low, high = bounds
    flat = torch.linspace(0, 1, max(1, torch.Size(shape).numel()), dtype=torch.float64)[: torch.Size(shape).numel()]
    if not dtype.is_floating_point and not dtype.is_complex and dtype != torch.bool:
        return (low + flat * (high - low)).floor().clamp(max=high - 1).reshape(shape).to(dtype)
    flat = flat > 0.5 if dtype == torch.bool else low + flat * (high - low)
    return flat.reshape(shape).to(dtype)


def argument(given: Any, where: str) -> Any:
    if isinstance(given, dict):
        return tensor(given, where)
    if isinstance(given, list):
        return [argument(g, f"{where}[{i}]") for i, g in enumerate(given)]
    if isinstance(given, str) and isinstance(getattr(torch, given.removeprefix("torch."), None), torch.dtype):
        return getattr(torch, given.removeprefix("torch."))
    return given


def calls(line: str, where: str) -> list[tuple[Callable[..., Any], list[Any], dict[str, Any]]]:
    """[(function, args, kwargs)] of one line."""
    try:
        spec = json.loads(line)
    except ValueError as problem:
        raise BadSpec(f"{where} is no JSON: {problem}") from None
    if not isinstance(spec, dict) or not isinstance(spec.get("op"), str) or spec.keys() - WORDS:
        raise BadSpec(f'{where}: write {{"op": "aten::mm", "args": [...]}}, with op, args and kwargs alone')
    function = operator(spec["op"])
    if function is None:
        raise BadSpec(f"{where}: torch has no operator {spec['op']}; name what registers it with --import")
    if "args" not in spec and "kwargs" not in spec:
        return [(function, args, {}) for args in probed(function, where)]
    kwargs = spec.get("kwargs", {})
    if not isinstance(kwargs, dict) or not isinstance(spec.get("args", []), list):
        raise BadSpec(f"{where}: args is a list and kwargs an object")
    args = [argument(a, f"{where}, argument {i}") for i, a in enumerate(spec.get("args", []))]
    kwargs = {k: argument(a, f"{where}, argument {k}") for k, a in kwargs.items()}
    try:
        theirs(function, *args, **kwargs)
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        raise BadSpec(f"{where}: the CPU takes no such call of {spec['op']}: {_first(problem)}") from None
    return [(function, args, kwargs)]


def _first(problem):
    return " ".join(str(problem).split("\n")[0].split())[:200] or type(problem).__name__


# ---- from the schema alone -------------------------------------------------------------


def candidates(kind: str, shape: Sequence[int], bounds: Any) -> list[Any]:
    """What an argument of a type in a schema may be; none for a type that is not known."""
    if kind.startswith("Optional["):
        return [None]
    known = {
        "Tensor": [values(shape, torch.float32, bounds)],
        "List[Tensor]": [[values(shape, torch.float32, bounds)] * 2],
        "int": [1, 0, 2, -1],
        "float": [0.5, 2.0],
        "bool": [False, True],
        "number": [2.0, 1],
        "List[int]": [[1], [2, 2], [0]],
        "str": ["mean"],
        "List[float]": [[1.0]],
    }
    return known.get(kind, [])


def probed(function: Callable[..., Any], where: str) -> list[tuple[list[Any], dict[str, Any]]]:
    """Arguments that the CPU takes and whose results are numbers: of several shapes, of the first range."""
    wanted = [a for a in function._schema.arguments if not a.kwarg_only and not a.has_default_value()]
    found, tried = [], 0
    for bounds, shape in itertools.product(RANGES, SHAPES):
        kinds = [candidates(str(a.type), shape, bounds) for a in wanted]
        if not all(kinds):
            at = next(a for a, k in zip(wanted, kinds) if not k)
            raise BadSpec(f"{where}: {function} has an argument {at.name} of type {at.type}: give args for it")
        for args in itertools.product(*kinds):
            tried += 1
            if tried > PROBES or len(found) >= EXAMPLES:
                return _some(found, function, where)
            if _is_taken(function, args):
                found.append(list(args))
                break  # another shape
        if found and shape == SHAPES[-1]:
            break  # of this range there are some
    return _some(found, function, where)


def _some(found, function, where):
    if not found:
        raise BadSpec(f"{where}: of what its schema allows {function} takes none that was tried: give args for it")
    return found


def _is_taken(function, args):
    kept = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    try:
        out = theirs(function, *kept)
    except Exception as problem:  # whatever an operator raises
        foreign(problem)
        return False
    if any(is_write(a) for a in function._schema.arguments):
        out = kept
    leaves = [t for t in (out if isinstance(out, (list, tuple)) else [out]) if isinstance(t, torch.Tensor)]
    floats = [t for t in leaves if t.is_floating_point() and t.numel()]
    return bool(leaves) and not any(bool(t.isnan().any()) for t in floats)


# ---- the trace -------------------------------------------------------------------------


def folder(text: str, imports: Sequence[str]) -> Path:
    """Where the trace of a specification lies, or will: by all that it hangs on."""
    files = [(str(m.resolve()), m.read_text()) for m in map(Path, imports) if m.suffix == ".py"]
    key = hashlib.sha256(repr((VERSION, torch.__version__, text, imports, files)).encode()).hexdigest()[:16]
    return cache_home() / "fuzz" / f"spec-{key}"


def record(path: str, text: str, where: Path) -> None:
    """Writes a trace of the calls that the text of a file tells of. BadSpec."""
    made = []
    for i, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            made += calls(line, f"{path}, line {i}")
    if not made:
        raise BadSpec(f"{path} holds no specification")
    recorder = Recorder(where, data="stats")
    recorder.begin(0)
    try:
        with torch.no_grad():
            for function, args, kwargs in made:
                theirs(function, *args, **kwargs)
    finally:
        recorder.end()
        recorder.close()


def main(words: Sequence[str] | None = None) -> int:
    """Makes the trace unless it is there, and prints where, or why not."""
    path, *imports = sys.argv[1:] if words is None else words
    try:
        import_modules([], imports)
        text = Path(path).read_text()
        where = folder(text, imports)
        made(where, lambda to: record(path, text, to))
    except OSError as problem:
        print(f"examples lie in {problem.filename}: {problem.strerror}", flush=True)  # where not
        return 2
    except (BadSpec, UnicodeDecodeError) as problem:
        print(f"examples lie in {problem}", flush=True)  # which says where not
        return 2
    except Exception as problem:  # a module that cannot be imported
        foreign(problem)
        print(f"examples lie in no module: {type(problem).__name__}: {problem}", flush=True)
        return 2
    print(f"examples lie in {where}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
