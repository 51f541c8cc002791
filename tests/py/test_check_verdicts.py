# SPDX-License-Identifier: Apache-2.0
"""One call, one verdict: what honest devices compute passes, planted bugs get the right
verdict. Devices are Python callables; no trace and no simulated device is needed."""

import pytest
import torch
import torch.nn.functional as F
from calls import honest, judged, make_call

from ulpscope.judges import wording
from ulpscope.executors.device import PythonDevice
from ulpscope.session.judging import Timing, judge_call

SEED = 20


@pytest.fixture(autouse=True)
def seeded():
    print(f"seed {SEED}")
    torch.set_num_threads(1)
    torch.manual_seed(SEED)


def randn(*sizes, dtype=torch.float32):
    return torch.randn(*sizes).to(dtype)


def adamw(step=3.0, n=40):
    """Arguments of a fused AdamW step over two parameters."""
    lists = [[randn(n), randn(4, 5)] for _ in range(2)]
    averages = [[0.1 * randn(n), 0.1 * randn(4, 5)], [randn(n) ** 2, randn(4, 5) ** 2]]
    steps = [torch.tensor(step), torch.tensor(step)]
    keywords = dict(lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False)
    return (*lists, *averages, [], steps), keywords


def index(high, *sizes):
    return torch.randint(high, sizes)


HONEST = {
    "mm": lambda: ("aten::mm", randn(32, 64), randn(64, 16)),
    "mm transposed": lambda: ("aten::mm", randn(32, 64), randn(16, 64).t()),
    "mm bf16": lambda: ("aten::mm", randn(32, 64, dtype=torch.bfloat16), randn(64, 16, dtype=torch.bfloat16)),
    "addmm": lambda: ("aten::addmm", randn(16), randn(32, 64), randn(64, 16)),
    "linear": lambda: ("aten::linear", randn(4, 8, 16), randn(32, 16), randn(32)),
    "softmax": lambda: ("aten::_softmax", randn(16, 64), -1, False),
    "softmax masked": lambda: (
        "aten::_softmax",
        randn(8, 8).masked_fill(torch.ones(8, 8).triu(1) > 0, -torch.inf),
        -1,
        False,
    ),
    "layer_norm": lambda: ("aten::native_layer_norm", randn(16, 64), [64], torch.ones(64), torch.zeros(64), 1e-5),
    "gelu": lambda: ("aten::gelu", randn(1000)),
    "gelu backward": lambda: ("aten::gelu_backward", randn(500), randn(500)),
    "embedding": lambda: ("aten::embedding", randn(50, 16), index(50, 7, 3)),
    "embedding backward": lambda: ("aten::embedding_dense_backward", randn(7, 3, 16), index(50, 7, 3), 50, -1, False),
    "nll": lambda: ("aten::nll_loss_forward", F.log_softmax(randn(8, 10), -1), index(10, 8), None, 1, -100),
    "log_softmax backward": lambda: (
        "aten::_log_softmax_backward_data",
        randn(8, 10),
        F.log_softmax(randn(8, 10), -1),
        -1,
        torch.float32,
    ),
    "view": lambda: ("aten::view", randn(3, 4), [12]),
    "transpose": lambda: ("aten::transpose.int", randn(3, 4), 0, 1),
    "expand": lambda: ("aten::expand", randn(3, 1), [3, 5]),
    "add of expanded": lambda: ("aten::add.Tensor", randn(3, 1).expand(3, 5), randn(3, 5)),
    "add_ to transposed": lambda: ("aten::add_.Tensor", randn(4, 4).t(), randn(4, 4)),
    "zero_": lambda: ("aten::zero_", randn(10)),
    "split": lambda: ("aten::split.Tensor", randn(10, 4), 3),
    "cat": lambda: ("aten::cat", [randn(2, 3), randn(4, 3)], 0),
    "index": lambda: ("aten::index.Tensor", randn(10, 4), [index(10, 5)]),
    "max": lambda: ("aten::max.dim", randn(5, 6), 1),
    "sort": lambda: ("aten::sort", randn(5, 6)),
    "sum": lambda: ("aten::sum.dim_IntList", randn(64, 100), [0]),
    "mean of all": lambda: ("aten::mean", randn(1000)),
    "foreach": lambda: ("aten::_foreach_add_.Scalar", [torch.tensor(3.0)] * 2, 1),
    "to bf16": lambda: ("aten::_to_copy", randn(8)),
    "compare": lambda: ("aten::gt.Scalar", randn(10), 0.0),
    "nonzero": lambda: ("aten::nonzero", F.relu(randn(10))),
    "item": lambda: ("aten::_local_scalar_dense", torch.tensor(1.5)),
    "zeros": lambda: ("aten::zeros", [3, 4]),
    "float64": lambda: ("aten::mm", randn(8, 8).double(), randn(8, 8).double()),
    "complex": lambda: ("aten::mul.Tensor", torch.complex(randn(8), randn(8)), torch.complex(randn(8), randn(8))),
    "conv": lambda: (
        "aten::convolution",
        randn(2, 3, 8, 8),
        randn(4, 3, 3, 3),
        randn(4),
        [1, 1],
        [1, 1],
        [1, 1],
        False,
        [0, 0],
        1,
    ),
    "batch_norm": lambda: (
        "aten::native_batch_norm",
        randn(8, 5),
        torch.ones(5),
        torch.zeros(5),
        torch.zeros(5),
        torch.ones(5),
        True,
        0.1,
        1e-5,
    ),
    "batch_norm without momentum": lambda: (
        "aten::native_batch_norm",
        randn(8, 5),
        None,
        None,
        torch.zeros(5),
        torch.ones(5),
        True,
        0.0,
        1e-5,
    ),
    "empty input": lambda: ("aten::relu", randn(0, 4)),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_device_passes(name):
    verdict = judged(honest, *HONEST[name]())
    assert verdict.verdict == "pass", (verdict.reason, verdict.worst)


def undropped(op, args, kwargs):
    return op(*args[:4], 0.0, *args[5:], **kwargs)


def test_attention_without_dropout_is_judged():
    q, k, v = (randn(2, 4, 16, 8) for _ in range(3))
    op = "aten::scaled_dot_product_attention"
    assert judged(honest, op, q, k, v, None, 0.0, True).verdict == "pass"
    assert judged(honest, op, q, k, v, None, 0.5, True).verdict == "pass"
    assert judged(undropped, op, q, k, v, None, 0.5, True).verdict == "wrong"


def test_fused_adamw_passes():
    arguments, keywords = adamw()
    assert judged(honest, "aten::_fused_adamw_", *arguments, **keywords).verdict == "pass"


def test_uninitialised_memory_is_not_compared():
    def other(op, args, kwargs):
        return torch.full(args[0], 7.0)

    assert judged(other, "aten::empty.memory_format", [3]).verdict == "pass"
    assert judged(other, "aten::zeros", [3]).verdict == "wrong"


def test_few_random_draws_are_unjudged():
    verdict = judged(honest, "aten::randn", [4])
    assert verdict.verdict == "unjudged" and "too few to tell" in verdict.worst.reason


def cloning(op, args, kwargs):
    """A device that writes no argument."""
    return op(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args), **kwargs)


@pytest.mark.parametrize(
    ("training", "momentum", "verdict"), [(True, 0.1, "wrong"), (True, 0.0, "pass"), (False, 0.1, "pass")]
)
def test_statistics_must_be_written_where_the_cpu_writes_them(training, momentum, verdict):
    found = judged(
        cloning,
        "aten::native_batch_norm",
        randn(8, 5),
        None,
        None,
        randn(5),
        randn(5) ** 2 + 1,
        training,
        momentum,
        1e-5,
    )
    assert found.verdict == verdict, found.reason
    if verdict == "wrong":
        said = wording.sentence("aten::native_batch_norm", found)
        assert "did not write running_mean (args[3]), running_var (args[4])" in said


# ---- planted bugs --------------------------------------------------------------------


def after(change):
    """A device that changes the result of an honest one."""

    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        return change(out) if not isinstance(out, tuple) else (change(out[0]), *out[1:])

    return device


def put(place, value):
    def change(out):
        out = out.clone()
        out.view(-1)[place] = value
        return out

    return after(change)


def test_nan_is_nonfinite():
    verdict = judged(put(5, torch.nan), "aten::mm", randn(8, 8), randn(8, 8))
    assert verdict.verdict == "nonfinite"
    call = make_call("aten::mm", randn(8, 8), randn(8, 8))
    assert "gives NaN" in wording.sentence(call.op, verdict)
    assert "[0, 5]" in wording.sentence(call.op, verdict)


def test_swallowed_nan_is_nonfinite():
    x = randn(8)
    x[3] = torch.nan
    assert judged(after(torch.nan_to_num), "aten::relu", x).verdict == "nonfinite"


@pytest.mark.parametrize(
    "change",
    [lambda y: y.double(), lambda y: y[:-1], lambda y: y.unsqueeze(0), lambda y: y.half()],
    ids=["float64", "shorter", "more axes", "float16"],
)
def test_wrong_form_is_wrong(change):
    assert judged(after(change), "aten::relu", randn(8)).verdict == "wrong"


def test_wrong_number_of_outputs_is_wrong():
    def device(op, args, kwargs):
        return op(*args, **kwargs)[:2]

    assert judged(device, "aten::split.Tensor", randn(9, 2), 3).verdict == "wrong"


def test_wrong_integer_is_wrong():
    assert judged(put(2, 5), "aten::cumsum", index(9, 6), 0).verdict == "wrong"


def test_index_of_an_equal_value_passes_and_of_another_does_not():
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0]])

    def choose(i):
        return lambda op, args, kwargs: (torch.tensor([[3.0]]), torch.tensor([[i]]))

    assert judged(choose(2), "aten::topk", x, 1).verdict == "pass"
    assert judged(choose(0), "aten::topk", x, 1).verdict == "wrong"
    assert judged(choose(9), "aten::topk", x, 1).verdict == "wrong"


def test_of_equal_values_the_one_that_the_documentation_names():
    x = torch.tensor([[1.0, 3.0, 3.0, 0.0]])

    def choose(i):
        return lambda op, args, kwargs: (torch.tensor([3.0]), torch.tensor([i]))

    assert [judged(choose(i), "aten::max.dim", x, 1).verdict for i in (1, 2)] == ["pass", "wrong"]


def test_lost_in_place_result_is_wrong():
    def device(op, args, kwargs):
        return args[0]

    assert judged(device, "aten::add_.Tensor", randn(8), randn(8)).verdict == "wrong"


def test_write_outside_the_view_is_wrong():
    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        args[0].as_strided((20,), (1,), 0)[19] += 1
        return out

    verdict = judged(device, "aten::add_.Tensor", randn(20)[:10], randn(10))
    assert verdict.verdict == "wrong" and "outside the view" in verdict.worst.reason


def test_write_between_the_elements_of_a_view_is_wrong():
    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        args[0].as_strided((20,), (1,), 0)[7] += 1
        return out

    assert judged(device, "aten::add_.Tensor", randn(20)[::2], randn(10)).verdict == "wrong"
    assert judged(honest, "aten::add_.Tensor", randn(20)[::2], randn(10)).verdict == "pass"


def test_write_to_a_read_only_argument_is_wrong():
    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        args[1][0] += 1
        return out

    verdict = judged(device, "aten::mm", randn(4, 4), randn(4, 4))
    assert verdict.verdict == "wrong" and "read-only" in verdict.worst.reason


def test_arguments_that_shared_a_storage_share_it_again():
    base = randn(20)
    seen = []

    def device(op, args, kwargs):
        seen.append(args[0].untyped_storage().data_ptr() == args[1].untyped_storage().data_ptr())
        return op(*args, **kwargs)

    assert judged(device, "aten::add_.Tensor", base[:10], base[10:]).verdict == "pass"
    assert seen and all(seen)


def test_refusal_is_unsupported():
    def device(op, args, kwargs):
        raise NotImplementedError("Could not run 'aten::relu' on this backend")

    verdict = judged(device, "aten::relu", randn(4))
    assert verdict.verdict == "unsupported" and "Could not run" in verdict.reason


class Flaky:
    """An honest device but for its run number `when`, which `then` makes of the result."""

    def __init__(self, when, then):
        self.n, self.when, self.then = 0, when, then

    def __call__(self, op, args, kwargs):
        self.n += 1
        out = op(*args, **kwargs)
        return self.then(out) if self.n == self.when else out


def fails(out):
    raise RuntimeError("the queue is corrupt")


@pytest.mark.parametrize(
    ("when", "then", "verdict", "said"),
    [
        (1, lambda out: out * 1.5, "intermittent", "one run is wrong, another run of the same call passes"),
        (2, lambda out: out * 1.5, "intermittent", "another run of the same call is wrong, one run passes"),
        (2, lambda out: out[:-1], "intermittent", "shape"),
        (2, fails, "intermittent", "raises: the queue is corrupt"),
        (2, lambda out: out * (1 + 2**-23), "pass", "differs from run to run, within rounding"),
        (3, lambda out: out * 1.5, "pass", ""),  # beyond the two runs that are made
    ],
)
def test_every_answer_of_a_device_is_judged(when, then, verdict, said):
    found = judged(Flaky(when, then), "aten::mm", randn(8, 8), randn(8, 8))
    assert found.verdict == verdict
    assert said in found.reason + " ".join(found.notes), (found.reason, found.notes)


def test_live_results_are_judged_on_the_capturing_device_type():
    x, y = randn(8, 8), randn(8, 8)

    def verdict(live):
        device = PythonDevice(honest, home="python")
        return judge_call(make_call("aten::mm", x, y, live=[live]), device)

    assert verdict(x @ y).verdict == "pass"
    bad = verdict(x @ y * 1.01)
    assert bad.verdict == "intermittent" and "the captured run is" in bad.reason
    assert any("may have changed since the capture" in note for note in bad.notes)


def test_a_failing_reference_is_unjudged_not_an_error():
    def device(op, args, kwargs):
        return torch.zeros(2, 2)

    assert judged(device, "aten::mm", randn(2, 3), randn(2, 3)).verdict == "undefined"


def test_row_holds_plain_values():
    call = make_call("aten::mm", randn(8, 8), randn(8, 8))
    timing = Timing()
    verdict = judge_call(call, PythonDevice(put(5, 100.0)), timing)
    row = wording.row(call, verdict, timing.row())
    assert row["verdict"] == "wrong" and row["n_elements"] == 64
    assert row["args"] == "float32[8, 8], float32[8, 8]"
    assert row["examples"][0][2] == "[0, 5]"
    assert row["t_total"] >= row["t_device"] + row["t_reference"] > 0


def test_a_missing_kernel_is_said_without_pages_on_backends():
    def refuse(op, args, kwargs):
        raise NotImplementedError(
            "Could not run 'aten::relu' with arguments from the 'SparseNPU' backend. This "
            "could be because the operator doesn't exist. If you are an employee, visit "
            "https://example.org. 'aten::relu' is only available for: [CPU]"
        )

    verdict = judged(refuse, "aten::relu", randn(4))
    assert verdict.verdict == "unsupported"
    assert verdict.reason == "there is no kernel for aten::relu with arguments of the backend SparseNPU"
