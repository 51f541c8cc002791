# SPDX-License-Identifier: Apache-2.0
"""Other frameworks as backends of torch.compile, where they are installed: `--via jax`, `--via onnxruntime`. A graph is
traced when it first runs. JAX computes it operator by operator of ATen's core set, by its own functions (`jax_table`), as
one compiled function; onnxruntime runs the model that torch.onnx exports. Both run on the CPU.

Needs of torch: make_fx, the core decompositions, torch.onnx.export, registering of backends."""

import importlib.util
import logging
import warnings

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from ..calls.foreign import foreign, theirs
from ..calls.torch_private import core_decompositions, known_backends, register_backend
from ..calls.verdicts import clause
from .jax_table import table

WITH_NUMBERS = {"add", "sub", "mul", "div", "pow", "remainder", "fmod"}
NEEDS = {"jax": ("jax",), "onnxruntime": ("onnxruntime", "onnxscript")}  # backend -> modules


def missing(name):
    """What to install for a backend, "" where all is there."""
    lacking = [module for module in NEEDS[name] if importlib.util.find_spec(module) is None]
    return f"pip install {' '.join(lacking)}" if lacking else ""


def register(name):
    """Makes a backend known to torch.compile."""
    if name not in known_backends(()):
        register_backend(lambda module, inputs: HandedOn(MAKERS[name], module), name=name)


class HandedOn:
    """A graph that is handed on when it first runs: by then its inputs are tensors with numbers."""

    def __init__(self, make, module):
        self.make, self.module, self.made = make, module, None

    def __call__(self, *args):
        if self.made is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of exporters
                self.made = self.make(self.module, args)
        return self.made(*args)


# ---- JAX -------------------------------------------------------------------------------


def of_jax(module, args):
    import jax

    jax.config.update("jax_enable_x64", True)  # its float64 is another dtype's kernel otherwise
    graph = make_fx(module, decomposition_table=core_decompositions(), tracing_mode="fake")(*args).graph
    functions = table()
    for node in graph.nodes:
        if node.op == "call_function" and hasattr(node.target, "overloadpacket") and _name(node) not in functions:
            raise NotImplementedError(f"no function of JAX is known for {node.target}")
    run = jax.jit(lambda *given: walked(graph, functions, given))

    def call(*given):
        return [back(t) for t in theirs(run, *map(there, given))]

    return call


def walked(graph, functions, given):
    """What a graph of ATen gives on arrays, each result in the dtype that torch's has."""
    given, values = iter(given), {}
    for node in graph.nodes:
        if node.op == "placeholder":
            values[node] = next(given)
        elif node.op == "get_attr":
            values[node] = there(getattr(graph.owning_module, node.target))
        elif node.op == "output":
            return (
                [values[n] for n in node.args[0]] if isinstance(node.args[0], (list, tuple)) else [values[node.args[0]]]
            )
        else:
            args = torch.fx.node.map_arg(node.args, lambda n: values[n])
            kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: values[n])
            if not hasattr(node.target, "overloadpacket"):  # getitem
                values[node] = theirs(node.target, *args)
                continue
            name, like = _name(node), node.meta["val"]
            args = _as_torch_reads(name, like, args)
            values[node] = _typed(functions[name](like, *args, **kwargs), like)


def _name(node):
    name = node.target.overloadpacket.__name__
    return name if name.startswith("__") else name.rstrip("_")


def _as_torch_reads(name, like, args):
    """Arguments as torch takes them, where JAX promotes otherwise: whole numbers become floats of the result's dtype, and
    a Python number beside 16 bits is not rounded to these first."""
    import jax

    arrays = [a for a in args if isinstance(a, jax.Array)]
    whole = arrays and not any(jax.numpy.issubdtype(a.dtype, jax.numpy.floating) for a in arrays)
    if not isinstance(like, torch.Tensor) or not arrays:
        return args
    if name == "pow" and not like.is_floating_point():
        raise NotImplementedError("not supported: to JAX whole numbers to negative powers are undefined")
    if whole and like.is_floating_point():
        to = str(like.dtype).removeprefix("torch.")
    elif name in WITH_NUMBERS and like.dtype in (torch.bfloat16, torch.float16) and any(type(a) is float for a in args):
        to = "float32"
    else:
        return args
    return [a.astype(to) if isinstance(a, jax.Array) else a for a in args]


def _typed(value, like):
    if isinstance(value, (tuple, list)):
        return [v if v is None else _typed(v, t) for v, t in zip(value, like)]
    return value.astype(str(like.dtype).removeprefix("torch."))


def there(tensor):
    import jax.numpy as jnp

    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:  # numpy has none
        return jnp.asarray(tensor.view(torch.int16).numpy()).view("bfloat16")
    return jnp.asarray(tensor.numpy())


def back(array):
    import numpy

    if array.dtype == "bfloat16":
        return torch.from_numpy(numpy.array(array.view("int16"))).view(torch.bfloat16)
    return torch.from_numpy(numpy.array(array))


# ---- onnxruntime -----------------------------------------------------------------------


def of_onnxruntime(module, args):
    import onnxruntime

    if any(t.dtype == torch.bfloat16 for t in args):
        raise NotImplementedError("onnxruntime takes no bfloat16 from numpy")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells at each export what else is not installed
    module.eval()
    try:
        exported = torch.onnx.export(module, args, dynamo=True, verbose=False)
        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, torch.get_num_threads()
        session = onnxruntime.InferenceSession(
            exported.model_proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as problem:  # of the exporter or of the session, each of its own kinds
        foreign(problem)
        raise NotImplementedError(f"not supported: {clause(problem)}") from None
    names = [i.name for i in session.get_inputs()]
    if len(names) != len(args):
        raise NotImplementedError("not supported: the exported model has other inputs")

    def call(*given):
        return [
            torch.from_numpy(t.copy())
            for t in session.run(None, {n: t.detach().contiguous().numpy() for n, t in zip(names, given)})
        ]

    return call


MAKERS = {"jax": of_jax, "onnxruntime": of_onnxruntime}
