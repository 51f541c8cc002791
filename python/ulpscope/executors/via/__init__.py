# SPDX-License-Identifier: Apache-2.0
"""Runtimes behind `--via NAME`: one file each, and what installed packages bring by entry points of the group
`ulpscope.via`. A name may carry an option: `openvino:f32`. What torch.compile itself knows (`inductor`) is no runtime.

Loads none of them, nor torch's compiler: whoever asks what there is pays for no more."""

import importlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

from ...calls.foreign import foreign, theirs

GROUP = "ulpscope.via"
OWN = {
    "executorch": "executorch:ExecuTorch",
    "iree": "iree:Iree",
    "jax": "jax:Jax",
    "litert": "litert:LiteRt",
    "mlx": "mlx:Mlx",
    "onnxruntime": "onnxruntime:OnnxRuntime",
    "openvino": "openvino:OpenVino",
    "tinygrad": "tinygrad:TinyGrad",
    "triton": "triton:Triton",
    "tvm": "tvm:Tvm",
}


class NotOffered(ValueError):
    """A runtime cannot serve; the text says what to do."""


def _entry_points() -> dict[str, Any]:
    found = importlib.metadata.entry_points()
    of_group = found.select(group=GROUP) if hasattr(found, "select") else found.get(GROUP, ())  # Python 3.9 has a dict
    made: dict[str, Any] = {}
    for entry in of_group:
        made[entry.name] = _Several(made[entry.name], entry) if entry.name in made else entry
    return made


class _Several:
    """Of packages that bring a runtime by the same name: nobody can tell which is meant."""

    def __init__(self, one: Any, other: Any) -> None:
        self.value = f"{one.value} and {other.value}"

    def load(self) -> Any:
        raise ImportError(f"several packages bring it ({self.value}); uninstall all but one")


def names() -> list[str]:
    """All that can be named."""
    return sorted({*OWN, *_entry_points()})


def is_known(via: str) -> bool:
    """Whether a name is that of a runtime, with or without an option."""
    name = via.partition(":")[0]
    return name in OWN or bool(name) and name in _entry_points()


def opened(via: str, device: str = "cpu") -> Any:
    """The runtime of a name, for a device. NotOffered with what to do."""
    name, _, option = via.partition(":")
    runtime = _class(name)()
    runtime.name, runtime.option = name, option
    if option and option not in runtime.options:
        known = ", ".join(f"{name}:{word} ({what})" for word, what in runtime.options.items())
        raise NotOffered(
            f"--via {via}: {name} has no option {option}; " + (f"known: {known}" if known else "it has none")
        )
    lacking = [package for module, package in runtime.packages.items() if not _is_there(module)]
    if lacking:
        raise NotOffered(f"--via {name} needs a package that is not installed: pip install {' '.join(lacking)}")
    for module, package in runtime.packages.items():
        version_of(module, package)
    why = theirs(runtime.offered, device)
    if why:
        raise NotOffered(f"--via {via} {why}")
    return runtime


def _is_there(module: str) -> bool:
    """Whether a module can be imported, without importing more than the packages around it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def version_of(module: str, package: str) -> str:
    """The version of a package that a module is imported from: of several on the path that which lies beside the
    module. NotOffered where two lie there, as a pip that was stopped leaves them."""
    name = package.partition("[")[0]  # without extras
    found = {(d.version, Path(str(d.locate_file(""))).resolve()) for d in importlib.metadata.distributions(name=name)}
    if len(found) > 1:
        spec = importlib.util.find_spec(module)
        lies = [*(spec.submodule_search_locations or ()), spec.origin or ""] if spec else []
        places = [Path(place).resolve() for place in lies]
        beside = {(version, home) for version, home in found if any(home in place.parents for place in places)}
        found = beside or found
    versions, homes = sorted({f"{version}" for version, _ in found}), sorted({str(home) for _, home in found})
    if len(versions) > 1:
        raise NotOffered(
            f"{len(versions)} versions of {name} are installed in {', '.join(homes)} ({', '.join(versions)}), and "
            f"which of them computes cannot be told: pip uninstall {name} until none is left, then pip install "
            f"{package}"
        )
    return versions[0] if versions else "unknown"


def _class(name: str) -> Any:
    try:
        if name not in OWN:
            return _entry_points()[name].load()
        file, _, what = OWN[name].partition(":")
        return getattr(importlib.import_module(f"{__name__}.{file}"), what)
    except Exception as problem:  # of a package that is half installed, or not made for this Python
        foreign(problem)
        raise NotOffered(f"--via {name} cannot be imported: {type(problem).__name__}: {problem}") from None


def backend(via: str, device: str = "cpu", gradients: bool = False) -> Any:
    """What torch.compile takes as `backend=` for a name, on a device: torch's own names as they are. With `gradients`
    the backward is a graph that is handed on as well. NotOffered as `opened` raises it."""
    if not is_known(via):
        return via
    runtime = opened(via, device)
    from ...calls.torch_private import with_backward  # takes seconds to import
    from .graphs import HandedOn

    def handed(module, inputs):
        return HandedOn(runtime, module, gradients)

    return with_backward(handed) if gradients else handed


def interpreted(function: Any, gradients: bool, twice: bool) -> Any:
    """A function that launches Triton kernels, run by Triton's interpreter. NotOffered where that is not installed."""
    from .triton import interpreted as by_triton

    return by_triton(function, gradients, twice)


def taps(via: str) -> bool:
    """Whether a runtime gives values in the middle of a graph beside its results."""
    return is_known(via) and bool(getattr(_class(via.partition(":")[0]), "taps", False))


def versions(via: str) -> dict[str, str]:
    """Of a runtime and what it needs: part of what a run is."""
    return opened(via).versions() if is_known(via) else {}
