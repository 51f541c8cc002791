# SPDX-License-Identifier: Apache-2.0
"""Functions that launch Triton kernels, on CPU tensors: Triton's interpreter in a process of its own, for it has to be
chosen before a kernel is defined. `interpreted(function)` stands for the function.

Needs of torch: tensors over pipes (torch.save, weights only)."""

from __future__ import annotations

import importlib.util
import io
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import torch

from ...calls.foreign import foreign, theirs
from ...calls.gradients import with_gradients
from ...calls.older import zip_equal
from ...calls.replay import Unsupported
from ..device import DeviceDied
from . import NotOffered
from .runtime import Runtime, to_numpy

if TYPE_CHECKING:
    from typing import Any


SERVER = __name__
SECONDS = 600  # that one call may take


class Triton(Runtime):
    """Its name among runtimes: one that takes functions, no graphs."""

    packages = {"triton": "triton"}

    def offered(self, device: str) -> str:
        return (
            "takes functions that launch Triton kernels, no operators: ulpscope.check_call(function, ..., via='triton')"
        )


class Interpreted:
    """A function of a module or of a script, called in another process, which lives until this one lets go of it.

    Unsupported where the interpreter refuses it, DeviceDied where it ends or hangs; what the function raises on its own
    is raised here by its name."""

    def __init__(self, function, gradients, twice):
        if importlib.util.find_spec("triton") is None:
            raise NotOffered("--via triton needs a package that is not installed: pip install triton")
        module, name = function.__module__, function.__qualname__
        if "<" in name:
            raise NotOffered(
                f"{name}: the interpreter's process finds functions of a module or script by their name alone"
            )
        self.file = getattr(sys.modules[module], "__file__", "") if module == "__main__" else ""
        self.module, self.name, self.process = module, name, None
        self.__name__, self.differentiated = function.__name__, gradients  # which are taken over there
        self.order = "twice" if twice else "once" if gradients else ""

    def __call__(self, *args, **kwargs):
        if self.process is None or self.process.poll() is not None:
            environment = os.environ | {
                "TRITON_INTERPRET": "1",
                "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
            }
            words = [sys.executable, "-m", SERVER, self.module, self.name, self.file, self.order]
            self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
        late = threading.Timer(SECONDS, self.process.kill)
        late.start()
        try:
            put(self.process.stdin, {"args": list(args), "kwargs": kwargs})
            answer = get(self.process.stdout)
        except BrokenPipeError:
            answer = None
        finally:
            on_time = late.is_alive()
            late.cancel()
        if answer is None:
            code = self.process.wait()
            raise DeviceDied(
                f"Triton's interpreter ended with code {code}: a kernel that reads or writes beside its tensors ends it"
                if on_time
                else f"Triton's interpreter gives no answer within {SECONDS} s"
            )
        if "problem" in answer:
            told = f"Triton's interpreter does not support it: {answer['problem']}"
            raise Unsupported(told) if answer["refused"] else RuntimeError(answer["problem"])
        for given, left in zip_equal(flat(args, kwargs), answer["left"]):
            if not same_bytes(given, left):
                with torch.no_grad():
                    given.copy_(left)
        return answer["result"]

    def __del__(self):
        if getattr(self, "process", None) is not None:
            self.process.kill()
            self.process.wait()


def interpreted(function: Any, gradients: bool = False, twice: bool = False) -> Any:
    """Stands for a function that launches Triton kernels: on CPU tensors, by Triton's interpreter. With `gradients`
    it gives those of its inputs as well, as `calls.gradients.with_gradients` says; with `twice` those of these."""
    return Interpreted(function, gradients or twice, twice)


def flat(args: Any, kwargs: Any) -> Any:
    """The tensors among arguments."""
    found = []

    def look(value):
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            for part in value:
                look(part)

    look([*args, *kwargs.values()])
    return found


def same_bytes(a: Any, b: Any) -> Any:
    """Whether a kernel has left an argument as it was, NaN and all."""
    return to_numpy(a).tobytes() == to_numpy(b).tobytes()


def put(file: Any, message: Any) -> None:
    text = io.BytesIO()
    torch.save(message, text)
    file.write(len(text.getbuffer()).to_bytes(8, "little") + text.getbuffer())
    file.flush()


def get(file: Any) -> Any:
    """A message; None at the end."""
    size = file.read(8)
    if len(size) < 8:
        return None
    text = file.read(int.from_bytes(size, "little"))
    return torch.load(io.BytesIO(text), weights_only=True)


def serve(module: Any, name: Any, file: Any, order: Any) -> None:
    """The other process: what it is asked on standard input, answered where standard output was."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # kernels may print
    if file:
        import runpy

        function = runpy.run_path(file, run_name="__ulpscope__")[name]
    else:
        import importlib

        function = importlib.import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    if order:
        function = with_gradients(function, order == "twice")
    while (asked := get(sys.stdin.buffer)) is not None:
        try:
            result = theirs(function, *asked["args"], **asked["kwargs"])
            put(answers, {"result": result, "left": flat(asked["args"], asked["kwargs"])})
        except Exception as problem:  # of a kernel, or of what the interpreter lacks
            foreign(problem)
            text = " ".join(f"{type(problem).__name__}: {getattr(problem, '__cause__', None) or problem}".split())
            refused = type(problem).__module__.split(".")[0] == "triton" or isinstance(problem, NotImplementedError)
            put(answers, {"problem": text[:300], "refused": refused})


if __name__ == "__main__":
    serve(*sys.argv[1:5])
