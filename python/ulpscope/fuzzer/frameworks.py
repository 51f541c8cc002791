# SPDX-License-Identifier: Apache-2.0
"""Another framework as the second side of a text: `module:NAME`, any module that can be imported and has torch's names.
Steps run by these names on values that went over by DLPack or numpy, and what comes of them is judged as a device's
answer. Needs torch for tensors and the gradients that are asked for.

What such a module may have beside torch's names: `Tensor` with methods as functions of their first argument, where its
own tensors have others; `from_torch` and `to_torch` in place of DLPack; `vjp(function, *tensors) -> (results,
pullback)` where it has no `autograd.grad` (or `grad`) of torch's kind; `load(module, weights)` where modules lay out
weights, by torch's names, in another way. docs/how-to/migrate-autotest.md."""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ..calls.foreign import foreign, theirs
from ..calls.gradients import cotangent
from ..calls.homes import import_it
from ..executors.device import UnknownDevice
from .steps import DEVICE, Run, changed, form

PREFIX = "module:"
MAKERS = ("tensor", "to_tensor", "asarray", "array")  # of a tensor from numpy


class Differs(Exception):
    """What a framework gives is of another form than what torch does; a clause."""


class Lacks(AttributeError):
    """The framework has no such name."""


def find(device: Any) -> Framework | None:
    """The framework that a device's name names; None for a device of torch."""
    return named(str(device).removeprefix(PREFIX)) if str(device).startswith(PREFIX) else None


@functools.cache
def named(name: str) -> Framework:
    """A framework by the name of its module, or the path of its file. UnknownDevice where it cannot be imported."""
    try:
        if name.endswith(".py"):
            import_it(name)
            return Framework(name, sys.modules[os.path.basename(name).removesuffix(".py")])
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        module, *rest = name.split(":")
        return Framework(name, functools.reduce(getattr, rest, importlib.import_module(module)))
    except Exception as problem:  # whatever a module raises that cannot be imported here
        foreign(problem)
        raise UnknownDevice(f"device {PREFIX}{name} is not there: {type(problem).__name__}: {problem}") from None


def is_tensor(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, (np.generic, type))


def tensors_in(value: Any) -> list[Any]:
    if is_tensor(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [t for item in value for t in tensors_in(item)] if isinstance(value, (list, tuple)) else []


class Framework:
    """A module with torch's names."""

    def __init__(self, name, module):
        self.name, self.module = name, module

    def get(self, path: str) -> Any:
        """What it has under a name of torch."""
        found = self.module
        for part in path.split("."):
            found = getattr(found, part, None)
            if found is None:
                raise Lacks(f"{self.name} has no {path}")
        return found

    def has(self, path: str) -> Any:
        try:
            return self.get(path)
        except Lacks:
            return None

    def take(self, tensor: torch.Tensor) -> Any:
        """A copy of a tensor of torch as one of its own."""
        tensor = tensor.detach().resolve_conj().resolve_neg().contiguous().clone()
        own = self.has("from_torch")
        if own is not None:
            return theirs(own, tensor)
        over = self.has("from_dlpack") or self.has("utils.dlpack.from_dlpack")
        if over is not None:
            return theirs(over, tensor)
        maker = next((m for m in map(self.has, MAKERS) if m is not None), None)
        if maker is None:
            raise Lacks(f"{self.name} has none of from_torch, from_dlpack, {', '.join(MAKERS)}")
        return theirs(maker, tensor.numpy())

    def back(self, value: Any) -> torch.Tensor:
        """A copy of one of its tensors as one of torch."""
        own = self.has("to_torch")
        if own is not None:
            return theirs(own, value)
        value = value.detach() if hasattr(value, "detach") else value
        if hasattr(value, "__dlpack__"):
            try:
                return torch.from_dlpack(value).clone()
            except Exception as problem:  # a dtype or a layout that its DLPack has not
                foreign(problem)
        array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        if array.dtype.name == "bfloat16":  # which numpy itself does not have
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(np.array(array))


class Side(Run):
    """The steps of a text by the names of a framework."""

    def __init__(self, framework, steps, values):
        super().__init__(steps, values, "cpu")
        self.framework, self.modules = framework, {}

    def moved(self, tensor: torch.Tensor) -> Any:
        return self.framework.take(tensor)

    def found(self, result: Any) -> list[Any]:
        return tensors_in(result)

    def _given(self, value):
        if isinstance(value, torch.dtype):
            return self.framework.get(str(value).removeprefix("torch."))
        return super()._given(value)

    def given(self, value: Any) -> Any:
        args, kwargs = value
        kwargs = {k: v for k, v in kwargs.items() if k != "device"}
        return changed([a for a in args if a is not DEVICE], self._given), changed(kwargs, self._given)

    def call(self, step: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        kind, name = step.word.kind, step.word.name
        if kind == "function":
            name = torch.overrides.resolve_name(step.function) or ""
            kind = "method" if name.startswith("torch.Tensor.") else "name" if name.startswith("torch.") else "own"
            name = name.removeprefix("torch.").removeprefix("Tensor.")
        if kind == "module":
            return self.module(step.function, *args)
        if kind == "name":
            return theirs(self.framework.get(name), *args, **kwargs)
        if kind in ("method", "get"):
            return self.method(name, kind == "get", args, kwargs)
        return theirs(step.function, *args, **kwargs)

    def method(self, name: str, attribute: bool, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A method: as a function of `Tensor`, else that of the tensor itself, else the function of that name."""
        space = getattr(self.framework.module, "Tensor", None)
        if (
            space is not None
            and not isinstance(args[0], space if isinstance(space, type) else ())
            and hasattr(space, name)
        ):
            return theirs(getattr(space, name), *args, **kwargs)
        if hasattr(args[0], name):
            found = getattr(args[0], name)
            return found if attribute else theirs(found, *args[1:], **kwargs)
        function = self.framework.has(name)
        if function is None:
            raise Lacks(f"tensors of {self.framework.name} have no {name}")
        return theirs(function, *args, **kwargs)

    def module(self, applied: Any, state: dict[str, torch.Tensor], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What a module gives, made by the class of that name, with the weights of the text."""
        made, layer = applied.layer.made, applied.layer
        if not made.path or layer.path:
            raise Lacks(f"{self.framework.name} has no {made.kind.__name__}.{layer.path}".rstrip("."))
        if id(made) not in self.modules:
            given, named = self.given((list(made.args), made.kwargs))
            self.modules[id(made)] = theirs(self.framework.get(made.path), *given, **named)
        module = self.modules[id(made)]
        load = self.framework.has("load")
        if load is not None:
            theirs(load, module, state)
        for key, value in state.items() if load is None else ():
            put(module, key, value)
        switch = getattr(module, "train" if layer.raw.training else "eval", None)
        if switch is not None:
            theirs(switch)
        return theirs(module, *args, **kwargs)


def put(module: Any, key: str, value: Any) -> None:
    """Puts a weight in the place of that of a module; what it does not have is left out, as a counter of batches may
    be."""
    *path, name = key.split(".")
    owner = module
    for part in path:
        owner = getattr(owner, part, None) if hasattr(owner, part) else owner[int(part)]
    own = getattr(owner, name, None)
    if own is None:
        return
    if tuple(own.shape) != tuple(value.shape):
        raise ValueError(
            f"{key} is {tuple(own.shape)} there and {tuple(value.shape)} in torch: an adapter has to turn it"
        )
    try:
        setattr(owner, name, value)
    except Exception as problem:  # as torch does of a parameter
        foreign(problem)
        delattr(owner, name)
        setattr(owner, name, value)


# ---- a text as a function of tensors of torch --------------------------------------------


def asked_gradients(program: Callable[..., Any], leaves: Sequence[torch.Tensor]) -> Any:
    """What is asked of a framework: which results are differentiated, by which cotangents, and which leaves have a
    gradient."""
    given = [t.detach().requires_grad_() if t.is_floating_point() or t.is_complex() else t.detach() for t in leaves]
    with torch.enable_grad():
        results = program(*given)
    outputs = [i for i, t in enumerate(results) if t.requires_grad]
    wanted = [i for i, t in enumerate(given) if t.requires_grad]
    cotangents = [cotangent(results[i]) for i in outputs]
    gradients = torch.autograd.grad(
        [results[i] for i in outputs], [given[i] for i in wanted], cotangents, allow_unused=True
    )
    return SimpleNamespace(
        outputs=outputs, wanted=wanted, cotangents=cotangents, some=[g is not None for g in gradients]
    )


def program(framework: Framework, steps: Any, name: str, asked: Any = None) -> Callable[..., Any]:
    """The steps as a function that takes and gives tensors of torch; with the gradients that are `asked` for."""

    def run(*leaves):
        values = [framework.take(t) for t in leaves]
        if asked is None:
            side = Side(framework, steps, values)
            side.go_on()
            results = [framework.back(v) for v in side.kept()]
            for leaf, value in zip(leaves, values):
                left = framework.back(value)
                if not leaf.requires_grad and left.shape == leaf.shape and not torch.equal(left, leaf.detach()):
                    leaf.copy_(left)  # what was written in place
            return results
        results, gradients = differentiated(framework, steps, values, asked)
        told = []
        for i, some, gradient in zip(asked.wanted, asked.some, gradients):
            gradient = None if gradient is None else framework.back(gradient)
            if some and gradient is None:
                raise Differs(f"it gives no gradient of x{i}, where torch has one")
            if not some and gradient is not None and gradient.any():
                raise Differs(f"it gives a gradient of x{i}, where torch has none")
            told += [gradient] if some else []
        return results, told

    run.__name__ = f"{name} with backward" if asked else name
    run.differentiated = asked is not None
    return run


def differentiated(
    framework: Framework, steps: Any, values: Sequence[Any], asked: Any
) -> tuple[list[torch.Tensor], Any]:
    """(results as tensors of torch, gradients as the framework has them)."""
    cotangents = [framework.take(c) for c in asked.cotangents]
    vjp = framework.has("vjp")

    def outputs_of(*wanted):
        side = Side(framework, steps, [dict(zip(asked.wanted, wanted)).get(i, v) for i, v in enumerate(values)])
        side.go_on()
        return side.kept()

    if vjp is not None:
        results = outputs_of(*(values[i] for i in asked.wanted))
        held(framework, results, asked)
        _, pull = theirs(
            vjp, lambda *w: tuple(outputs_of(*w)[i] for i in asked.outputs), *(values[i] for i in asked.wanted)
        )
        return [framework.back(v) for v in results], theirs(pull, tuple(cotangents))
    grad = framework.has("autograd.grad") or framework.get("grad")
    wanted = [asking(values[i]) for i in asked.wanted]
    results = outputs_of(*wanted)
    held(framework, results, asked)
    return (
        [framework.back(v) for v in results],
        theirs(grad, [results[i] for i in asked.outputs], wanted, cotangents, allow_unused=True),
    )


def held(framework: Framework, results: Sequence[Any], asked: Any) -> None:
    """Differs where a result is of another form than a cotangent, which would not go with it."""
    for i, wanted in zip(asked.outputs, asked.cotangents):
        given = framework.back(results[i])
        if form(given) != form(wanted):
            raise Differs(f"result {i} is {form(given)} where torch's is {form(wanted)}")


def asking(value: Any) -> Any:
    """A tensor of which gradients are asked, in the words of torch or of Paddle."""
    if hasattr(value, "stop_gradient"):
        value.stop_gradient = False
    else:
        value.requires_grad = True
    return value
