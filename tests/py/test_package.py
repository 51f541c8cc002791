# SPDX-License-Identifier: Apache-2.0
"""The package as one meets it at a prompt: what `import ulpscope` gives, what it names, and
modules with gradients."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import ulpscope
from ulpscope import testing

MODULES = [
    (torch.nn.Conv1d(3, 4, 3), (2, 3, 9)),
    (torch.nn.Conv2d(3, 4, 3), (2, 3, 7, 7)),
    (torch.nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 5)),
    (torch.nn.Bilinear(3, 3, 5), (6, 3)),
    (torch.nn.LSTM(4, 5), (3, 2, 4)),
    (torch.nn.GRU(4, 5, bidirectional=True), (3, 2, 4)),
    (torch.nn.LSTMCell(4, 5), (2, 4)),
    (torch.nn.Linear(4, 5), (6, 4)),
    (torch.nn.BatchNorm2d(3), (4, 3, 5, 5)),
    (torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (4, 2, 8)),
]


def run(*command):
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=120)


def test_a_fresh_import_has_all_that_the_documents_name():
    """In a process of its own: submodules that a test imported would be there in any case."""
    done = run(
        "-c",
        "import sys, ulpscope\n"
        "assert 'torch' not in sys.modules, 'torch is loaded at once'\n"
        "missing = {'capture', 'step', 'check_call', 'judge_call', 'reference', 'testing',"
        " '__version__'} - set(dir(ulpscope))\n"
        "assert not missing, missing\n"
        "ulpscope.reference.register('demo::x'), ulpscope.testing.assert_accurate\n"
        "print(ulpscope.__version__)\n"
        "try: ulpscope.nosuch\n"
        "except AttributeError as e: print(e)",
    )
    assert done.returncode == 0, done.stderr
    version, refusal = done.stdout.splitlines()
    assert version[0].isdigit() and "no attribute 'nosuch'" in refusal


def test_no_compiler_is_loaded_before_it_is_asked_for():
    """Torch's own, with sympy, takes seconds; what judges a call that passes needs none of it."""
    done = run(
        "-c",
        "import sys\n"
        "def heavy():\n"
        "    return [m for m in sys.modules if m.split('.')[0] == 'sympy'"
        " or m.startswith(('torch._dynamo', 'torch._inductor'))][:3]\n"
        "import ulpscope, ulpscope.worker, ulpscope.sim\n"
        "assert not heavy(), ('imports', heavy())\n"
        "import torch\n"
        "x = torch.randn(8, 8)\n"
        "assert ulpscope.check_call(torch.nn.functional.gelu, (x,)).verdict == 'pass'\n"
        "assert ulpscope.judge_call(torch.mm, (x, x), {}, (x @ x,)).verdict == 'pass'\n"
        "ulpscope.testing.assert_accurate(torch.tanh, torch.tanh, x)\n"
        "assert not heavy(), ('calls', heavy())",
    )
    assert done.returncode == 0, done.stderr


def test_a_worker_loads_no_compiler_to_take_an_operator_apart():
    """The stand-in gives way to whoever asks for more than to be left alone."""
    done = run(
        "-c",
        "import sys, torch\n"
        "from ulpscope import worker\n"
        "from ulpscope.executors.noise import Flush\n"
        "worker.prepare({'threads': 1, 'recorded': [], 'imports': []})\n"
        "loaded = lambda: 'torch._dynamo.eval_frame' in sys.modules\n"
        "with Flush(): torch.ops.aten.gelu(torch.full((4,), 1e-38))\n"
        "assert 'torch._refs' in sys.modules and not loaded()\n"
        "stand_in = torch._dynamo\n"
        "from torch._dynamo.exc import Unsupported\n"
        "assert loaded() and torch._dynamo is sys.modules['torch._dynamo'] is not stand_in\n"
        "mine = lambda x: x + 1\n"
        "assert stand_in.config is torch._dynamo.config and stand_in.disable(mine) is not mine\n"
        "assert torch.compile(mine, backend='eager')(torch.ones(1)) == 2",
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--version"], 0, f"ulpscope {ulpscope.__version__}"),
        (["show", "no-such-trace"], 2, ""),
    ],
)
def test_the_package_is_a_program_as_well(words, code, said):
    done = run("-m", "ulpscope", *words)
    assert done.returncode == code and said in done.stdout, done.stderr


def test_run_exec_builds_nothing_where_nothing_changed():
    root = Path(__file__).resolve().parents[2]
    build = Path(os.environ.get("ULPSCOPE_BUILD", root / "build"))
    command = [root / "run", "exec", "ulpscope", "--version"]
    for _ in range(5):  # a test beside this one may build as well
        subprocess.run(command, check=True, capture_output=True)  # whatever did change
        before = (build / "build.log").stat().st_mtime_ns
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        if (build / "build.log").stat().st_mtime_ns == before:
            break
    else:
        pytest.fail("each start builds")
    assert done.stdout.startswith(f"ulpscope {ulpscope.__version__}\n")


def rms(x, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


def rounded(x, eps):
    return rms(x.bfloat16(), eps).float()


def of_another_shape(x, eps):
    return rms(x, eps)[:-1]


def refusing(x, eps):
    if x.shape != (16, 64):
        raise RuntimeError("no such tile")
    return rms(x, eps)


@pytest.mark.parametrize(
    ("kernel", "name", "verdict"),
    [
        (rounded, "rounded", "reduced"),
        (of_another_shape, "of_another_shape", "wrong"),
        (refusing, "refusing", "crashed"),
        (functools.partial(rounded, eps=1e-6), "rounded", "reduced"),
        (lambda x, eps: rounded(x, eps), "the function", "reduced"),
    ],
)
def test_the_kernel_is_accused_and_not_its_reference(kernel, name, verdict):
    arguments = {} if isinstance(kernel, functools.partial) else {"eps": 1e-6}
    reference = rms if arguments else functools.partial(rms, eps=1e-6)
    with pytest.raises(AssertionError) as caught:
        testing.assert_accurate(
            kernel, reference, torch.randn(16, 64), inputs="stress:0:given,wide*,size*", **arguments
        )
    text = str(caught.value)
    assert f"{verdict}: {name} " in text and "rms " not in text, text


@pytest.mark.parametrize(("module", "sizes"), MODULES, ids=lambda x: type(x).__name__)
def test_gradients_of_a_module_are_judged(module, sizes):
    """Of its parameters too; and by a function of the same name where it is the reference."""
    torch.manual_seed(4)
    n = 2 if isinstance(module, torch.nn.Bilinear) else 1
    inputs = tuple(torch.randn(sizes) for _ in range(n))
    found = ulpscope.check_call(module, inputs, backward=True)
    assert found.passed, found.sentence
    n_gradients = len(list(module.parameters())) + n
    assert len([o for o in found.outputs if o.path.startswith("out[1]")]) == n_gradients
    assert all(p.grad is None for p in module.parameters())


def test_a_wrong_gradient_of_a_module_is_caught():
    """A linear layer whose input is rounded for the weight's gradient only."""

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w.t()

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            return grad @ w, grad.t() @ x.bfloat16().to(grad.dtype)

    torch.manual_seed(4)
    module, x = torch.nn.Linear(40, 8, bias=False), torch.randn(16, 40)
    found = ulpscope.check_call(
        lambda x, w: Product.apply(x, w), (x, module.weight.detach()), reference=lambda x, w: x @ w.t(), backward=True
    )
    assert found.verdict == "reduced"
    assert [o.path for o in found.outputs if not o.passed] == ["out[1][1]"]


@pytest.mark.parametrize("module", [torch.nn.Conv2d(3, 4, 3), torch.nn.LSTM(4, 3)], ids=lambda m: type(m).__name__)
def test_a_module_serves_as_reference_of_gradients(module):
    torch.manual_seed(4)
    x = torch.randn(2, 3, 8, 8) if isinstance(module, torch.nn.Conv2d) else torch.randn(5, 2, 4)

    def same(x):
        return module(x)

    def narrow(x):
        return module((x + 0).bfloat16().float())

    found = ulpscope.check_call(same, (x,), reference=module, backward=True)
    assert found.passed and found.sentence.startswith("same with backward")
    assert ulpscope.check_call(narrow, (x,), reference=module, backward=True).verdict == "reduced"
