# SPDX-License-Identifier: Apache-2.0
"""Large outputs judged in pieces and on a sample of rows: the same verdict as of the whole,
and wrong kernels found wherever they are wrong. The sizes from which this is done are made
small here."""

import pickle
import subprocess
import sys

import pytest
import torch
from calls import make_call
from traces import TraceWriter
import ulpscope
from ulpscope import _core
from ulpscope.calls import contents as _contents
from ulpscope.judges import answers, outputs, products, rows
from ulpscope.session import judging
from ulpscope.calls.contents import Contents, Reader, brief
from ulpscope.executors.device import PythonDevice, TorchDevice
from ulpscope.calls.read_call import call_from
from ulpscope.calls.verdicts import FLAGGED

ROWS, INNER, WIDE = 1200, 96, 40


@pytest.fixture(autouse=True)
def small(monkeypatch):
    torch.set_num_threads(1)
    torch.manual_seed(7)
    monkeypatch.setattr(rows, "LARGE", 1000)
    monkeypatch.setattr(rows, "PIECE", 3000)
    monkeypatch.setattr(products, "WORK", 1 << 18)
    monkeypatch.setattr(products, "FEWEST", 64)


def randn(*sizes):
    return torch.randn(*sizes)


PRODUCTS = {
    "mm": lambda: ("aten::mm", (randn(ROWS, INNER), randn(INNER, WIDE))),
    "mm of transposed": lambda: ("aten::mm", (randn(INNER, ROWS).t(), randn(WIDE, INNER).t())),
    "addmm": lambda: ("aten::addmm", (randn(WIDE), randn(ROWS, INNER), randn(INNER, WIDE))),
    "addmm of a matrix": lambda: ("aten::addmm", (randn(ROWS, WIDE), randn(ROWS, INNER), randn(INNER, WIDE))),
    "bmm": lambda: ("aten::bmm", (randn(2, ROWS, INNER), randn(2, INNER, WIDE))),
    "baddbmm": lambda: ("aten::baddbmm", (randn(2, 1, WIDE), randn(2, ROWS, INNER), randn(2, INNER, WIDE))),
    "linear": lambda: ("aten::linear", (randn(3, ROWS // 3, INNER), randn(WIDE, INNER), randn(WIDE))),
}


def verdict_of(kind, fault=None, table=PRODUCTS):
    op, args = table[kind]()
    device = TorchDevice("cpu") if fault is None else PythonDevice(fault)
    return judging.judge_call(make_call(op, *args), device, seconds=0)


@pytest.mark.parametrize("kind", PRODUCTS)
def test_a_large_product_is_judged_on_some_rows(kind):
    verdict = verdict_of(kind)
    assert verdict.verdict == "pass"
    assert any(note.startswith("judged on ") and "rows" in note for note in verdict.notes)
    assert 0 < verdict.part.share < 0.5
    assert verdict.worst.n == 2 * ROWS * WIDE if "b" == kind[0] else ROWS * WIDE


def spoilt(spoil):
    """A device that spoils what the CPU gives, as rows of a matrix."""

    def device(op, args, kwargs):
        out = op(*args, **kwargs)
        spoil(out.view(-1, WIDE))
        return out

    return device


def tf32(op, args, kwargs):
    def low(x):
        m, e = torch.frexp(x)
        return torch.ldexp((m * 2**11).round() / 2**11, e)

    return op(*map(low, args), **kwargs)


def stale(out):
    out[-1, -1] = 0.0


def tile(out):
    out[512:576] = 0.0


FAULTS = {
    "TF32": tf32,
    "a row": spoilt(lambda out: out[777].mul_(1.01)),
    "an element": spoilt(lambda out: out[413, 17].add_(0.05)),
    "NaN": spoilt(lambda out: out[999, 3].fill_(float("nan"))),
    "two elements exchanged": spoilt(lambda out: out[333].copy_(out[333].roll(1))),
    "two rows exchanged": spoilt(lambda out: out[101:103].copy_(out[101:103].flip(0))),
    "the last element": spoilt(stale),
    "a tile": spoilt(tile),
    "zeros": spoilt(lambda out: out.zero_()),
}


@pytest.mark.parametrize("kind", PRODUCTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_product_is_found_wherever_it_is(kind, fault):
    assert verdict_of(kind, FAULTS[fault]).verdict in FLAGGED


def test_the_place_of_a_wrong_element_is_told():
    verdict = verdict_of("mm", FAULTS["an element"])
    assert [e[0] for e in verdict.worst.examples][:1] == [413 * WIDE + 17]


ROWWISE = {
    "gelu": lambda: ("aten::gelu", (randn(ROWS, WIDE),)),
    "add": lambda: ("aten::add.Tensor", (randn(ROWS, WIDE), randn(WIDE))),
    "mul transposed": lambda: ("aten::mul.Tensor", (randn(WIDE, ROWS).t(), randn(ROWS, 1))),
    "add_": lambda: ("aten::add_.Tensor", (randn(ROWS, WIDE), randn(ROWS, WIDE))),
    "_log_softmax": lambda: ("aten::_log_softmax", (randn(ROWS, WIDE), 1, False)),
    "_softmax": lambda: ("aten::_softmax", (randn(ROWS, WIDE), -1, False)),
    "_log_softmax_backward_data": lambda: (
        "aten::_log_softmax_backward_data",
        (randn(ROWS, WIDE), randn(ROWS, WIDE).log_softmax(1), 1, torch.float32),
    ),
    "nll_loss_backward": lambda: (
        "aten::nll_loss_backward",
        (
            torch.tensor(0.3),
            randn(ROWS, WIDE),
            torch.randint(0, WIDE, (ROWS,)),
            None,
            1,
            -100,
            torch.tensor(float(ROWS)),
        ),
    ),
}


@pytest.mark.parametrize("kind", ROWWISE)
def test_a_large_output_is_judged_in_pieces(kind):
    verdict = verdict_of(kind, table=ROWWISE)
    assert verdict.verdict == "pass" and verdict.part.share == 1.0
    assert (verdict.worst.n, verdict.worst.sizes) == (ROWS * WIDE, (ROWS, WIDE))
    assert sum(p.data.numel() for p in verdict.operands.reference.parts.values()) <= 4 * 3000


def enlarged(op, args, kwargs):
    """One element of a middle row is off by a thousandth."""
    out = op(*args, **kwargs)
    out[701, 5] = out[701, 5] * 1.001 + 1e-4
    return out


@pytest.mark.parametrize("kind", ROWWISE)
def test_a_wrong_element_in_any_piece_is_found(kind):
    verdict = verdict_of(kind, enlarged, ROWWISE)
    assert verdict.verdict in FLAGGED
    assert [e[0] for e in verdict.worst.examples][:1] == [701 * WIDE + 5]


# ---- what falls apart along other dimensions, and into outputs of other forms ----------------

N = 24
CUT = {
    "_log_softmax of columns": lambda: ("aten::_log_softmax", (randn(ROWS, WIDE), 0, False)),
    "cumsum of columns": lambda: ("aten::cumsum", (randn(ROWS, WIDE), 0)),
    "cumsum in the middle": lambda: ("aten::cumsum", (randn(3, ROWS // 3, WIDE), 1)),
    "sum of columns": lambda: ("aten::sum.dim_IntList", (randn(ROWS, WIDE), [0])),
    "sum, kept": lambda: ("aten::sum.dim_IntList", (randn(6, ROWS // 6, WIDE), [0, 2], True)),
    "mean of rows": lambda: ("aten::mean.dim", (randn(ROWS, WIDE), [-1])),
    "logsumexp": lambda: ("aten::logsumexp", (randn(ROWS, WIDE), [1])),
    "var": lambda: ("aten::var.correction", (randn(ROWS, WIDE), [1])),
    "topk": lambda: ("aten::topk", (randn(ROWS, WIDE), 3)),
    "max": lambda: ("aten::max.dim", (randn(ROWS, WIDE), 1)),
    "glu": lambda: ("aten::glu", (randn(ROWS, WIDE),)),
    "native_layer_norm": lambda: (
        "aten::native_layer_norm",
        (randn(ROWS, WIDE), [WIDE], randn(WIDE), randn(WIDE), 1e-5),
    ),
    "native_group_norm": lambda: (
        "aten::native_group_norm",
        (randn(N, 8, 10, 20), randn(8), randn(8), N, 8, 200, 4, 1e-5),
    ),
    "bmm": lambda: ("aten::bmm", (randn(90, 12, 8), randn(90, 8, 20))),
    "convolution": lambda: (
        "aten::convolution",
        (randn(N, 4, 12, 20), randn(8, 4, 3, 3), randn(8), [1, 1], [1, 1], [1, 1], False, [0, 0], 1),
    ),
    "max_pool2d": lambda: ("aten::max_pool2d_with_indices", (randn(N, 4, 20, 20), [2, 2])),
    "upsample": lambda: ("aten::upsample_nearest2d", (randn(N, 4, 9, 9), [18, 18])),
    "attention": lambda: (
        "aten::_scaled_dot_product_flash_attention_for_cpu",
        (randn(N, 2, 16, 8), randn(N, 2, 16, 8), randn(N, 2, 16, 8)),
    ),
    "nll_loss_forward": lambda: (
        "aten::nll_loss_forward",
        (randn(ROWS, WIDE), (torch.arange(ROWS) % WIDE).masked_fill(torch.arange(ROWS) % 7 == 0, -40), None, 1, -40),
    ),
    "nll_loss2d_forward": lambda: (
        "aten::nll_loss2d_forward",
        (randn(N, WIDE, 4, 5), torch.randint(0, WIDE, (N, 4, 5)), None, 1, 0),
    ),
    "_foreach_mul": lambda: ("aten::_foreach_mul_.Scalar", ([randn(400), randn(900), randn(700)], 1.7)),
    "_fused_sgd_": lambda: (
        "aten::_fused_sgd_",
        ([randn(400), randn(900)], [randn(400), randn(900)], [randn(400), randn(900)]),
        dict(
            weight_decay=0.1, momentum=0.9, lr=0.1, dampening=0.0, nesterov=False, maximize=False, is_first_step=False
        ),
    ),
}


def cut_verdict(kind, fault=None):
    op, args, *kwargs = CUT[kind]()
    device = TorchDevice("cpu") if fault is None else PythonDevice(fault)
    return judging.judge_call(make_call(op, *args, **(kwargs[0] if kwargs else {})), device, seconds=0)


def results(out, args):
    """What a call gives, or writes where it gives nothing."""
    found = out if isinstance(out, (tuple, list)) else [args[0] if out is None else out]
    return found[0] if isinstance(found[0], list) else found


@pytest.mark.parametrize("kind", CUT)
def test_calls_that_fall_apart_are_judged_in_pieces(kind):
    verdict = cut_verdict(kind)
    assert verdict.verdict == "pass" and verdict.part is not None, verdict.reason
    op, args, *kwargs = CUT[kind]()
    call = make_call(op, *args, **(kwargs[0] if kwargs else {}))
    assert [f.sizes for f in verdict.findings] == [
        tuple(t.shape) for t in TorchDevice("cpu").run(call).outputs.values()
    ]


@pytest.mark.parametrize("at", [0.0, 0.43, 1.0])
@pytest.mark.parametrize("kind", CUT)
def test_a_wrong_element_is_found_and_its_place_told(kind, at):
    told = {}

    def off(op, args, kwargs):
        out = op(*args, **kwargs)
        first = results(out, args)[-1 if "_f" in kind[:2] else 0]
        told["i"] = round(at * (first.numel() - 1))
        flat = first.reshape(-1)
        flat[told["i"]] += 0.03 * (1 + flat[told["i"]].abs())
        return out

    verdict = cut_verdict(kind, off)
    assert verdict.verdict in FLAGGED
    assert [e[0] for e in verdict.worst.examples][:1] == [told["i"]]


@pytest.mark.parametrize(
    "op, args",
    [
        ("aten::sum", lambda: (randn(ROWS, WIDE),)),
        ("aten::_softmax", lambda: (randn(ROWS * 3), 0, False)),
        ("aten::native_layer_norm", lambda: (randn(ROWS, WIDE), [ROWS, WIDE], None, None, 1e-5)),
        ("aten::mse_loss_backward", lambda: (torch.tensor(0.5), randn(ROWS, WIDE), randn(ROWS, WIDE), 1)),
    ],
)
def test_rows_that_hang_together_are_judged_as_one(op, args):
    verdict = judging.judge_call(make_call(op, *args()), TorchDevice("cpu"))
    assert verdict.verdict == "pass" and verdict.part is None


# ---- contents that are read when they are needed -----------------------------------------------


@pytest.fixture
def far(monkeypatch, tmp_path):
    """A function that makes a call whose tensors lie in a trace, and are large."""
    monkeypatch.setattr(_contents, "LARGE", 1000)
    monkeypatch.setattr(_contents, "CHUNK", 4096)

    def make(op, *args, folder="trace"):
        with TraceWriter(tmp_path / folder) as t:
            t.add(op, *args)
        trace = _core.Trace(str(tmp_path / folder))
        return call_from(trace.call(trace.select()[0]), Reader(trace))

    return make


FAR = ["gelu", "mul transposed", "add_", "_log_softmax", "nll_loss_backward"]


@pytest.mark.parametrize("kind", FAR)
def test_large_tensors_of_a_trace_are_judged_as_those_in_memory(far, kind):
    op, args = ROWWISE[kind]()
    call = far(op, *args)
    assert any(call.storages.is_far(v.storage) for v in call.views.values())
    verdict = judging.judge_call(call, TorchDevice("cpu"), seconds=0)
    assert verdict.verdict == "pass" and verdict.part is not None
    assert verdict.worst.bits == verdict_of_memory(op, args)
    wrong = judging.judge_call(far(op, *args, folder="again"), PythonDevice(enlarged), seconds=0)
    assert wrong.verdict in FLAGGED and [e[0] for e in wrong.worst.examples][:1] == [701 * WIDE + 5]


def verdict_of_memory(op, args):
    return judging.judge_call(make_call(op, *args), TorchDevice("cpu"), seconds=0).worst.bits


@pytest.mark.parametrize("kind", ["gelu", "_log_softmax"])
def test_who_writes_a_large_argument_is_found(far, kind):
    def trespasser(op, args, kwargs):
        out = op(*args, **kwargs)
        args[0][900, 7] += 1
        return out

    op, args = ROWWISE[kind]()
    verdict = judging.judge_call(far(op, *args), PythonDevice(trespasser), seconds=0)
    assert verdict.verdict == "wrong" and "read-only argument" in str(verdict.findings)


@pytest.mark.parametrize("large", [1000, 1 << 26])
def test_one_wrong_answer_in_two_is_found(monkeypatch, large):
    runs = []

    def flaky(op, args, kwargs):
        runs.append(1)
        return enlarged(op, args, kwargs) if len(runs) == 2 else op(*args, **kwargs)

    monkeypatch.setattr(judging, "LARGE", large)
    assert verdict_of("gelu", flaky, ROWWISE).verdict == "intermittent"


@pytest.mark.parametrize("size", [(7,), (3, 5, 4), (0, 3), ()])
def test_what_stands_for_a_tensor(size):
    x = torch.randn(size)
    assert brief(x).is_of(x.clone()) and brief(x) == brief(x.clone())
    assert not brief(x).is_of(x.double()) and not brief(x).is_of(x.reshape(-1, 1, 1, 1))
    if x.dim() == 3:
        turned = x.permute(2, 0, 1).contiguous().permute(1, 2, 0)
        assert brief(turned).is_of(x) and brief(x).is_of(turned) and not brief(x).is_of(x.flip(1))
    if x.numel():
        assert not brief(x).is_of(x + 1)


def test_contents_are_read_in_parts_and_let_go():
    reads, whole = [], torch.arange(200, dtype=torch.uint8)

    def fill(first, tensor):
        reads.append((first, len(tensor)))
        tensor.copy_(whole[first : first + len(tensor)])

    contents = Contents({1: torch.zeros(3, dtype=torch.uint8)})
    contents.later(2, 200, fill)
    assert 2 in contents and contents.is_far(2) and contents.size(2) == 200 and not reads
    assert contents.part(2, 50, 60).tolist() == list(range(50, 60)) and reads == [(50, 10)]
    assert contents.copy()[2].equal(whole) and contents.is_far(2)
    assert contents[2] is contents[2] and not contents.is_far(2)
    assert contents.fresh(2) is not contents[2] and len(reads) == 3
    contents.let_go()
    assert contents.is_far(2) and not contents.is_far(1)
    sent = pickle.loads(pickle.dumps(contents))
    assert sent[1].equal(contents[1]) and sent[2].equal(whole) and not sent.is_far(2)
    contents.let_go()
    contents[2] = whole[:7]
    contents.let_go()
    assert len(contents[2]) == 7


def test_a_worker_takes_little_beside_the_tensors_of_a_run(tmp_path):
    """Two arguments and the result are one run's, 450 MB; torch and a piece take 600 MB."""
    x = torch.randn(1500, 25_000).log_softmax(1)
    with TraceWriter(tmp_path / "trace") as t:
        t.add("aten::_log_softmax_backward_data", torch.randn(1500, 25_000), x, 1, torch.float32)
    code = (
        "import resource, subprocess, sys; rc = subprocess.run(sys.argv[1:], stdout=2).returncode; "
        "print(rc, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            code,
            sys.executable,
            "-m",
            "ulpscope",
            "check",
            tmp_path / "trace",
            "--device",
            "cpu",
            "--timeout",
            "900",
            "-j",
            "1",
            "-o",
            tmp_path / "out",
        ],
        capture_output=True,
        text=True,
    )
    rc, peak = map(int, done.stdout.split())
    assert rc == 0 and peak < 1_350_000, done.stderr  # KiB; 2,300,000 where each run keeps its own


# ---- what one piece settles ----


def of_callable(fn, args, change):
    out = fn(*args).detach().contiguous()
    change(out.view(-1))
    return ulpscope.judge_call(fn, args, outputs=out, cause=False)


def scaled(first, last, factor):
    def change(flat):
        flat[first:last] *= factor

    return change


X, Y = torch.rand(40_000) + 1, torch.rand(40_000) + 1


TABLE, LANES = torch.randn(400, 100), (torch.rand(100), torch.rand(100))
IN_PIECES = {
    "add": (torch.add, (X, Y)),
    "relu": (torch.relu, (X,)),
    "a number's product": (lambda x: x * 2, (X,)),
    "gelu": (torch.nn.functional.gelu, (X,)),
    "softmax": (torch.softmax, (TABLE, -1)),
    "softmax of columns": (lambda x: torch.softmax(x, 0), (TABLE,)),
    "layer_norm": (torch.nn.functional.layer_norm, (TABLE, (100,), *LANES)),
    "a module's": (torch.nn.LayerNorm(100), (TABLE,)),
    "sums of rows": (lambda x: x.cumsum(-1), (TABLE,)),
}


@pytest.mark.parametrize("fn, args", IN_PIECES.values(), ids=IN_PIECES)
def test_a_callable_of_one_operator_is_judged_in_pieces(fn, args, monkeypatch):
    made = []
    monkeypatch.setattr(rows, "pieces", lambda *a, cut=rows.pieces: made.append(cut(*a)) or made[-1])
    assert of_callable(fn, args, scaled(0, 0, 1)).verdict == "pass"
    found = of_callable(fn, args, scaled(9_000, 9_100, 1.1))
    assert found.verdict == "wrong" and " of 40,000 elements differ" in found.sentence and made[0] is not None


def test_a_closed_over_tensor_is_not_cut():
    assert of_callable(lambda x: x + Y, (X,), scaled(0, 0, 1)).verdict == "pass"
    assert of_callable(lambda x: x.flip(0), (X,), scaled(0, 0, 1)).verdict == "pass"


SQUARE = torch.randn(200, 200)
AS_IT_LIES = {
    "turned before": lambda x: torch.relu(x.t()),
    "turned behind": lambda x: torch.relu(x).t(),
    "turned before a softmax": lambda x: torch.softmax(x.t(), -1),
    "a half before": lambda x: torch.softmax(x[:, :100], -1),
}


@pytest.mark.parametrize("fn", AS_IT_LIES.values(), ids=AS_IT_LIES)
def test_what_is_not_handed_on_as_it_lies_is_not_cut(fn):
    assert of_callable(fn, (SQUARE,), lambda flat: None).verdict == "pass"


def test_a_worse_piece_decides_behind_one_that_is_accused():
    def change(flat):
        flat[:20_000] = flat[:20_000].bfloat16().float()
        flat[30_000] *= 1.5

    assert of_callable(torch.add, (X, Y), scaled(0, 40_000, 1 + 2.0**-9)).verdict in FLAGGED
    found = of_callable(torch.add, (X, Y), change)
    assert found.verdict == "wrong"

    def spoil(flat):
        change(flat)
        flat[39_000] = float("nan")

    assert of_callable(torch.add, (X, Y), spoil).verdict == "nonfinite"


def test_few_pieces_are_judged_whole(monkeypatch):
    pieces, whole = set(), set()
    judged, replay = outputs._judged, answers.Answers.replay
    monkeypatch.setattr(
        outputs, "_judged", lambda case, operands, *a: pieces.add(operands) or judged(case, operands, *a)
    )
    monkeypatch.setattr(
        answers.Answers, "replay", lambda self, case, k: whole.add(self.operands) or replay(self, case, k)
    )
    assert of_callable(torch.add, (X, Y), scaled(0, 40_000, 1.01)).verdict == "wrong"
    assert len(whole) <= 2 and len(pieces) >= 10  # at first sight
