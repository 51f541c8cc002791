# SPDX-License-Identifier: Apache-2.0
"""Every form that a call can have, judged on an honest device and on one with a fault: the
reference is found, keeps what it must keep, and nothing raises."""

import itertools
import sys
import subprocess

import pytest
import torch
from calls import honest, judged

import ulpscope
from ulpscope.calls.replay import resolve
from ulpscope.calls.verdicts import FLAGGED


def seeded(*sizes, dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*sizes, generator=g).to(dtype)


def test_a_written_view_with_an_offset_is_no_trespass():
    view = seeded(20)[3:9]
    assert judged(honest, "aten::mul_.Scalar", view, 3.0).verdict == "pass"
    strided = seeded(30).as_strided((4, 3), (5, 1), 2)
    assert judged(honest, "aten::mul_.Scalar", strided, 3.0).verdict == "pass"


def test_a_write_beside_the_view_is_trespass():
    def beside(op, args, kwargs):
        view = args[0]
        view.as_strided((1,), (1,), view.storage_offset() - 1).fill_(7)
        return op(*args, **kwargs)

    verdict = judged(beside, "aten::mul_.Scalar", seeded(20)[3:9], 3.0)
    assert verdict.verdict == "wrong"
    assert "outside the view" in verdict.findings[-1].reason


def test_a_result_without_storage_counts_as_zeros():
    verdict = judged(honest, "aten::_efficientzerotensor", [3], dtype=torch.float32)
    assert verdict.verdict == "pass"


# ---- forms ---------------------------------------------------------------------------


def rows(n=4, m=12, dtype=torch.float32, seed=0):
    return seeded(n, m, dtype=dtype, seed=seed)


BF16 = torch.bfloat16
FORMS = {
    "mixed dtypes": lambda: ("aten::mul.Tensor", [rows(dtype=BF16), rows(seed=1)], {}),
    "a low and a wide tensor": lambda: (
        "aten::addcmul",
        [rows(), rows(dtype=BF16, seed=1), rows(dtype=BF16, seed=2)],
        {},
    ),
    "integers beside floats": lambda: ("aten::mul.Tensor", [rows(), torch.arange(12)], {}),
    "an index": lambda: ("aten::embedding", [rows(), torch.tensor([3, 0, 2])], {}),
    "a list of optional indices": lambda: ("aten::index.Tensor", [rows(), [None, torch.tensor([1, 5])]], {}),
    "in place": lambda: ("aten::addcmul_", [rows(), rows(seed=1), rows(seed=2)], dict(value=0.3)),
    "in place, an indexed part": lambda: ("aten::index_put_", [rows(), [torch.tensor([1, 2])], rows(2)], {}),
    "out=": lambda: ("aten::add.out", [rows(), rows(seed=1)], dict(alpha=0.7, out=torch.zeros(4, 12))),
    "out= of several": lambda: (
        "aten::max.dim_max",
        [rows(), 1],
        dict(max=torch.zeros(4), max_values=torch.zeros(4, dtype=torch.int64)),
    ),
    "a view with a hole": lambda: ("aten::exp", [rows(4, 24)[:, ::2]], {}),
    "a view by layout": lambda: ("aten::as_strided", [rows(), [3, 2], [4, 1], 1], {}),
    "a copy by layout": lambda: ("aten::as_strided_copy", [rows(), [3, 2], [4, 1], 1], {}),
    "expanded": lambda: ("aten::mul.Tensor", [rows(1, 12).expand(4, 12), rows()], {}),
    "one element without a stride": lambda: ("aten::expand", [torch.tensor(0.3), [1]], {}),
    "one of a row without a stride": lambda: (
        "aten::add.Tensor",
        [torch.tensor(0.3).expand(1), torch.tensor(0.7).expand(1)],
        {},
    ),
    "several results": lambda: ("aten::var_mean.correction", [rows(), [1]], dict(correction=1)),
    "values and indices": lambda: ("aten::topk", [rows(), 3], {}),
    "an optional tensor left out": lambda: ("aten::native_layer_norm", [rows(), [12], None, seeded(12), 1e-5], {}),
    "a list of tensors": lambda: ("aten::cat", [[rows(), rows(seed=1)], 1], {}),
    "a returned list": lambda: ("aten::split_with_sizes_copy", [rows(), [5, 7], 1], {}),
    "foreach": lambda: (
        "aten::_foreach_addcmul.Scalar",
        [[rows(), rows(2)], [rows(seed=1), rows(2)], [rows(seed=2), rows(2)]],
        dict(value=0.3),
    ),
    "foreach in place": lambda: ("aten::_foreach_mul_.ScalarList", [[rows(), rows(2)], [0.3, 1.7]], {}),
    "device=": lambda: ("aten::full", [[3, 4], 0.3], dict(device=torch.device("cpu"))),
    "dtype=": lambda: ("aten::_to_copy", [rows()], dict(dtype=BF16, device=torch.device("cpu"))),
    "generator=": lambda: ("aten::native_dropout", [rows(), 0.0, False], {}),
    "a number tensor": lambda: ("aten::mul.Tensor", [rows(dtype=BF16), torch.tensor(0.3)], {}),
    "a sum asked for in another dtype": lambda: (
        "aten::sum.dim_IntList",
        [rows(dtype=BF16), [1]],
        dict(dtype=torch.float32),
    ),
    "values choose the shape": lambda: ("aten::masked_select", [rows(), rows(seed=1) > 0], {}),
    "no tensors at all": lambda: ("aten::linspace", [0.0, 1.0, 13], {}),
}


def enlarged(op, args, kwargs):
    """A device whose float results, returned or written, are 1 % too large."""
    out = op(*args, **kwargs)
    results = out if isinstance(out, (tuple, list)) else [out]
    changed = {}
    for t in [*results, *_written(op, args, kwargs)]:
        if isinstance(t, torch.Tensor) and t.is_floating_point() and t.data_ptr() not in changed:
            changed[t.data_ptr()] = t
    views = any(r.alias_info and not r.alias_info.is_write for r in op._schema.returns)
    if views:
        return out * 1.01
    for t in changed.values():
        t.mul_(1.01)
    return out


def _written(op, args, kwargs):
    for i, a in enumerate(op._schema.arguments):
        value = args[i] if i < len(args) else kwargs.get(a.name)
        if a.alias_info is not None and a.alias_info.is_write:
            yield from value if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_through_a_trace(form):
    op, args, kwargs = FORMS[form]()
    verdict = judged(honest, op, *args, **kwargs)
    assert verdict.verdict == "pass", verdict.findings
    op, args, kwargs = FORMS[form]()
    assert judged(enlarged, op, *args, **kwargs).verdict in FLAGGED


@pytest.mark.parametrize("form", FORMS)
def test_a_form_through_the_interface(form):
    for device, verdicts in ((honest, {"pass"}), (enlarged, FLAGGED)):
        name, args, kwargs = FORMS[form]()
        _, left_args, left_kwargs = FORMS[form]()
        out = device(resolve(name), left_args, left_kwargs)
        verdict = ulpscope.judge_call(resolve(name), args, kwargs, out, mutated=(left_args, left_kwargs))
        assert verdict.verdict in verdicts, verdict.sentence


# ---- fused optimizers ----------------------------------------------------------------


def step_args(kind, tensor_lr, amsgrad, maximize, found_inf, scale, dtype):
    """Arguments of a fused optimizer's kernel for two tensors."""

    def many(seed, change=lambda t: t):
        return [change(seeded(7, 5, seed=seed)).to(dtype), change(seeded(40, seed=seed + 1)).to(dtype)]

    grads = many(3, lambda t: t * (scale or 1.0))
    lr = torch.tensor(0.01) if tensor_lr else 0.01
    extra = dict(
        lr=lr,
        weight_decay=0.1,
        maximize=maximize,
        grad_scale=None if scale is None else torch.tensor(scale),
        found_inf=None if found_inf is None else torch.tensor(found_inf),
    )
    steps = [torch.tensor(4.0), torch.tensor(9.0)]
    if kind == "sgd":
        return [many(1), grads, many(5)], dict(
            extra, momentum=0.9, dampening=0.1, nesterov=amsgrad, is_first_step=False
        )
    if kind == "adagrad":
        return [many(1), grads, many(5, torch.square), steps], dict(extra, lr_decay=0.01, eps=1e-8)
    squares = many(7, torch.square)
    largest = many(9, torch.square) if amsgrad else []
    return [many(1), grads, many(5), squares, largest, steps], dict(
        extra, beta1=0.9, beta2=0.99, eps=1e-8, amsgrad=amsgrad
    )


STEPS = [
    (kind, *rest)
    for kind in ("adam", "adamw", "sgd", "adagrad")
    for rest in itertools.product((False, True), (False, True), (None, 0.0, 1.0))
    if not (kind == "adagrad" and (rest[0] or rest[1]))
]


@pytest.mark.parametrize("kind,tensor_lr,amsgrad,found_inf", STEPS)
def test_a_fused_step(kind, tensor_lr, amsgrad, found_inf):
    """Every variant passes; a learning rate that is 1 % off is found, and so is a step that
    is taken in spite of found_inf."""
    name = f"aten::_fused_{kind}_" + (".tensor_lr" if tensor_lr else "")
    scale = None if found_inf is None else 1024.0
    args, kwargs = step_args(kind, tensor_lr, amsgrad, not amsgrad, found_inf, scale, torch.float32)
    assert judged(honest, name, *args, **kwargs).verdict == "pass"

    def faulty(op, args, kwargs):
        kwargs = dict(kwargs, lr=kwargs["lr"] * 1.01, found_inf=None)
        return op(*args, **kwargs)

    assert judged(faulty, name, *args, **kwargs).verdict in FLAGGED


def right_by_copies(op, args, kwargs):
    """A fused step on contiguous copies, put back through the strides."""
    copies = [[t.contiguous().clone() for t in group] for group in args]
    op(*copies, **kwargs)
    for group, results in zip(args, copies):
        for t, result in zip(group, results):
            t.copy_(result)


@pytest.mark.parametrize("kind", ["adam", "adamw", "sgd", "adagrad"])
def test_a_fused_step_of_tensors_with_gaps(kind):
    """torch's own kernel takes other elements than a tensor has: it is no reference there."""
    args, kwargs = step_args(kind, False, False, False, None, None, torch.float32)
    args = [[gappy(t) for t in group] if i < len(args) - 1 else group for i, group in enumerate(args)]
    name = f"aten::_fused_{kind}_"
    assert judged(right_by_copies, name, *args, **kwargs).verdict == "pass"
    assert judged(honest, name, *args, **kwargs).verdict == "wrong"


def test_a_fused_step_with_gaps_inside_a_callable():
    p, g, m, v = (gappy(seeded(8, 30, seed=i).abs()) for i in range(4))

    def step(p, g, m, v):
        torch.ops.aten._fused_adamw_(
            [p],
            [g],
            [m],
            [v],
            [],
            [torch.tensor(5.0)],
            lr=1e-2,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        return p, m, v

    right = step(*(t.contiguous() for t in (p, g, m, v)))
    assert ulpscope.judge_call(step, [p, g, m, v], {}, right).verdict == "pass"
    native = step(*(torch.empty_strided(t.shape, t.stride()).copy_(t) for t in (p, g, m, v)))
    assert ulpscope.judge_call(step, [p, g, m, v], {}, native).verdict == "wrong"


def gappy(t):
    """The same tensor with a number behind every element."""
    if t.dim() == 0:
        return t
    return torch.stack([t, torch.full_like(t, 7)], -1)[..., 0]


@pytest.mark.parametrize("kind", ["adam", "sgd"])
def test_a_fused_step_in_bfloat16(kind):
    args, kwargs = step_args(kind, False, False, False, None, None, BF16)

    def exact(op, args, kwargs):
        wide = [[t.float() for t in group] for group in args]
        op(*wide, **kwargs)
        for group, result in zip(args, wide):
            for t, r in zip(group, result):
                t.copy_(r)

    assert judged(exact, f"aten::_fused_{kind}_", *args, **kwargs).verdict == "pass"


# ---- what an operator leaves open ------------------------------------------------------


@pytest.mark.parametrize("dtype", [BF16, torch.float16])
def test_either_convention_on_numbers_passes(dtype):
    x, y = seeded(400, dtype=dtype), seeded(400, dtype=dtype, seed=1)

    def exactly(op, args, kwargs):
        return (args[0].double() + args[1].double() * kwargs["alpha"]).to(dtype)

    def rounded(op, args, kwargs):
        return exactly(op, args, dict(alpha=float(torch.tensor(kwargs["alpha"], dtype=dtype))))

    def truncated(op, args, kwargs):
        return exactly(op, args, dict(alpha=0.1))

    assert judged(exactly, "aten::add.Tensor", x, y, alpha=0.1003).notes == []
    verdict = judged(rounded, "aten::add.Tensor", x, y, alpha=0.1003)
    assert verdict.verdict == "pass"
    assert "rounded to" in verdict.notes[0]
    assert judged(truncated, "aten::add.Tensor", x, y, alpha=0.1003).verdict in FLAGGED


def test_largest_numbers_are_those_of_the_captured_dtype():
    for dtype in (torch.float32, BF16, torch.float16):
        x = torch.tensor([1.5, float("inf"), -float("inf"), float("nan")], dtype=dtype)
        assert judged(honest, "aten::nan_to_num", x).verdict == "pass"
        assert judged(lambda op, a, k: op(*a, posinf=60000.0), "aten::nan_to_num", x).verdict in FLAGGED


def test_bits_seen_as_another_dtype():
    assert judged(honest, "aten::view.dtype", rows(), torch.int32).verdict == "pass"
    assert judged(honest, "aten::view.dtype", rows(), BF16).verdict == "pass"
    assert judged(honest, "aten::nextafter", rows(dtype=BF16), rows(dtype=BF16, seed=1)).verdict == "pass"


def test_a_name_may_say_the_dtype():
    assert judged(honest, "aten::chalf", rows()).verdict == "pass"
    far = lambda op, a, k: (op(*a).to(torch.complex64) * 1.01).to(torch.complex32)  # noqa: E731
    assert judged(far, "aten::chalf", rows()).verdict in FLAGGED


def test_a_range_made_in_float32_passes():
    def by_hand(op, args, kwargs):
        return torch.arange(30).float() * 0.1

    assert judged(by_hand, "aten::arange.start_step", 0.0, 3.0, 0.1).verdict == "pass"
    assert (
        judged(lambda op, a, k: torch.arange(30) * 0.1003, "aten::arange.start_step", 0.0, 3.0, 0.1).verdict in FLAGGED
    )


def test_integers_that_hang_on_the_dtype_are_those_of_the_cpu():
    verdict = judged(honest, "aten::_embedding_bag", rows(10, 5), torch.arange(5), torch.tensor([0, 3]))
    assert verdict.verdict == "pass", verdict.findings


def test_value_dependent_shapes_need_no_replays():
    x = seeded(5).repeat(4)
    assert judged(honest, "aten::_unique2", x).verdict == "pass"
    assert judged(enlarged, "aten::_unique2", x).verdict in FLAGGED
    some = (seeded(50) > 0).float()
    assert judged(honest, "aten::nonzero", some).verdict == "pass"
    assert judged(lambda op, a, k: op(*a)[:-1], "aten::nonzero", some).verdict == "wrong"


# ---- references that fail -------------------------------------------------------------


def test_a_call_that_the_cpu_rejects_is_a_finding_of_its_own():
    verdict = judged(lambda op, a, k: a[0][:1], "aten::index_select", rows(), 0, torch.tensor([7]))
    assert verdict.verdict == "undefined"
    assert "rejects" in verdict.reason and "out of range" in verdict.reason


@pytest.fixture
def operator():
    """An operator of our own that doubles, whose kernel is honest."""
    library = torch.library.Library("formtest", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CPU")
    yield "formtest::twice"
    ulpscope.executors.registered._registered.pop("formtest::twice", None)
    library._destroy()


def reason_with(operator, formula):
    ulpscope.reference.register(operator)(formula)
    verdict = judged(honest, operator, seeded(64) / 3)
    assert verdict.verdict == "unjudged", verdict.findings
    return verdict.reason


def test_a_reference_that_raises(operator):
    def formula(x):
        raise ArithmeticError("cannot")

    assert "cannot" in reason_with(operator, formula)


def test_a_reference_that_gives_something_else_every_time(operator):
    seen = []

    def formula(x):
        seen.append(1)
        return x * (2 + len(seen) * 1e-5)

    assert "different results at two runs" in reason_with(operator, formula)


def test_a_reference_that_rounds_inside_is_noticed(operator):
    def formula(x):
        return torch.from_numpy(x.numpy().astype("float32") * 2).to(x.dtype)

    assert "rounds to float32 inside" in reason_with(operator, formula)


def test_a_reference_that_asks_for_less_is_kept_wide(operator):
    ulpscope.reference.register(operator)(lambda x: (x.bfloat16() * 2).to(x.dtype))
    assert judged(honest, operator, seeded(64) / 3).verdict == "pass"


def test_a_reference_that_wants_all_memory():
    """In a process of its own: the limit is the whole process's."""
    code = """
import torch
from calls import honest, judged
from ulpscope import reference
from ulpscope.executors import memory_limit
library = torch.library.Library("memtest", "FRAGMENT")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x + x, "CPU")
@reference.register("memtest::twice")
def greedy(x):
    torch.empty(1 << 31, dtype=torch.uint8)
    return x + x
memory_limit.free = lambda: 1 << 27
memory_limit.limit("reference")
verdict = judged(honest, "memtest::twice", torch.randn(8))
print(verdict.verdict, verdict.reason)
memory_limit.limit("device")
print(judged(honest, "memtest::twice", torch.randn(8)).verdict)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=__file__.rpartition("/")[0])
    first, second = run.stdout.splitlines()
    assert first.startswith("unjudged") and "more memory than there is" in first, run.stderr
    assert second == "pass"
