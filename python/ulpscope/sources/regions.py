# SPDX-License-Identifier: Apache-2.0
"""What ran past the recorder: graphs that a compiler turned into code of its own. Their calls
never come to the dispatcher, so that a trace cannot hold them; it says how many there were."""

import functools
import importlib.util
import sys

# Where torch keeps what runs generated code: module, class (its subclasses too).
PLACES = (
    ("torch._inductor.output_code", "OutputCode"),
    ("torch._inductor.codecache", "CompiledFxGraph"),  # before 2.6
    ("torch._inductor.package.package", "AOTICompiledModel"),
)


class Regions:
    """
    Counts generated graphs while it is installed, each once however often it runs. Loads
    nothing of torch's compiler: a module that is not there yet is met when the program
    imports it.
    """

    def __init__(self, ran):
        self.ran = ran  # id -> graph, kept alive so that no other gets its id
        self.undo = []
        self.waits = {name: owner for name, owner in PLACES if name not in sys.modules}
        for name, owner in PLACES:
            if name in sys.modules:
                self._watch(sys.modules[name], owner)
        sys.meta_path.insert(0, self)

    def remove(self):
        """Takes the hooks out."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        while self.undo:
            self.undo.pop()()

    def find_spec(self, name, path=None, target=None):
        """Python's question where a module is: of those waited for, to be there behind it."""
        owner = self.waits.pop(name, None)
        if owner is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            if self in sys.meta_path:
                self._watch(module, owner)

        spec.loader.exec_module = exec_module
        return spec

    def _watch(self, module, name):
        owner = getattr(module, name, None)
        if not isinstance(owner, type):
            return
        for one in (owner, *_below(owner)):
            if "__call__" in vars(one):
                self._wrap(one)

    def _wrap(self, owner):
        original, ran = owner.__call__, self.ran

        @functools.wraps(original)
        def call(this, *args, **kwargs):
            ran.setdefault(id(this), this)
            return original(this, *args, **kwargs)

        owner.__call__ = call
        self.undo.append(lambda: setattr(owner, "__call__", original))


def _below(owner):
    for one in owner.__subclasses__():
        yield one
        yield from _below(one)
