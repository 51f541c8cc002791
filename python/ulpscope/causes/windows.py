# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how an operator walks over its input with a window, as convolutions and poolings
do: another step, dilation or padding, a border of other values, windows off by one, groups
mixed up, a tap left out. Each is (text, edit): what a report would say, and edit(func, args,
kwargs), which gives what func would give with that mistake, in the shape of the right result.
Serves torch functions as their author wrote them (`functions`) and the operators inside a
call (`inside`) alike.
"""

import itertools
import math

import torch
from torch.nn import functional

LISTS = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0, "kernel_size": None}
BORDERS = {"replicate": "repeats the edge", "reflect": "reflects", "circular": "goes around"}


def kind_of(name):
    """"conv", "transposed", "avg", "max" or "lp" for a function with windows, else ""."""
    name = name.strip("_")
    if name.startswith("conv_transpose"):
        return "transposed"
    if name.startswith("conv") and name not in ("convolution_backward", "conv_tbc"):
        return "conv"
    pools = ("avg_pool", "max_pool", "lp_pool")
    return name[:3].strip("_") if name.startswith(pools) and not name.endswith("backward") else ""


def window_edits(name, named, shape):
    """(text, edit) for a function of this name and arguments, whose right result has `shape`."""
    if name.strip("_").startswith("adaptive_") and not name.endswith("backward"):
        yield from _adaptive_edits(name, named, shape)
    if name == "convolution_backward" and not named.get("transposed"):
        yield from Gradient("conv", named, len(named["weight"].shape) - 2, ()).edits()
    kind = kind_of(name)
    x = named.get("input", named.get("self"))
    if named.get("transposed"):
        kind = "transposed"
    rank = len(shape) - 2
    if name.strip("_") in ("unfold", "fold", "im2col", "col2im") and len(shape) > 1 and "kernel_size" in named:
        kind, rank = "fold", 2
    if not kind or not 0 < rank <= 3 or not hasattr(x, "shape") or len(x.shape) != (rank + 2 if kind != "fold" else len(x.shape)):
        return
    window = Window(kind, named, rank, tuple(shape))
    yield from window.numbers()
    if kind in ("conv", "avg", "max", "fold"):
        yield from window.borders()
    if kind in ("avg", "max") and window.size:
        yield from window.pools()
    if kind in ("conv", "transposed"):
        yield from window.groups()
        yield from window.taps()


class Window:
    """One call of a function with windows: its arguments by name, tensors or what stands for
    them, and the number of axes that windows move along."""

    def __init__(self, kind, named, rank, shape):
        self.kind, self.named, self.rank, self.shape = kind, named, rank, shape
        self.input = "input" if "input" in named else "self"
        weight = named.get("weight")
        self.size = self.list("kernel_size") or (list(weight.shape[2:]) if weight is not None else [])

    def list(self, name):
        """An argument of one number for each axis; [] where there is none."""
        value = self.named.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return [value] * self.rank
        value = list(value) if isinstance(value, (list, tuple)) else []
        value = value * self.rank if len(value) == 1 else value
        return value if len(value) == self.rank and all(isinstance(v, int) for v in value) else []

    def numbers(self):
        """Other steps, dilations, paddings and window sizes."""
        for name, plain in LISTS.items():
            old = self.list(name)
            for new in _others(name, old, plain) if old else ():
                text = f"wrong {name}: {_shown(new)} instead of {_shown(old)}"
                yield text, self.edit({name: new}, self.needed(name, new))
                if name == "dilation" and set(new) == {1}:
                    yield f"{text}, aligned at the end", self.edit({name: new}, last=True)
                if name == "dilation" and self.kind == "conv" and self.list("padding"):
                    padding = [p + (n - o) * (k - 1) // 2 for p, n, o, k in
                               zip(self.list("padding"), new, old, self.size)]  # fmt: skip
                    if min(padding) >= 0 and padding != self.list("padding"):
                        yield f"{text}, around the same middle", self.edit({name: new, "padding": padding})

    def needed(self, name, new):
        """Cuts the input down to what windows of another step read, or makes it longer."""
        if name.endswith("padding") or self.kind not in ("conv", "avg", "max", "lp") or not self.size:
            return None
        front = self.list("padding") or [0] * self.rank
        ends = [e - p for e, p in zip(self.ends({name: new}), front)]

        def cut(x):
            for axis, end in enumerate(ends, x.dim() - self.rank) if name == "stride" else ():
                x = x.narrow(axis, 0, min(max(end, 1), x.shape[axis]))
            more = [(0, max(end - n - p, 0)) for end, n, p in zip(ends, x.shape[-self.rank :], front)]
            return padded(x, more, self.empty()) if any(b for _, b in more) else x

        return cut

    def ends(self, other=None):
        """How many elements of each axis, padding in front among them, the windows reach."""
        held = {"stride": self.list("stride") or self.size, "kernel_size": self.size,
                "dilation": self.list("dilation") or [1] * self.rank, **(other or {})}  # fmt: skip
        return [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in
                zip(self.shape[-self.rank :], held["stride"], held["dilation"], held["kernel_size"])]  # fmt: skip

    def empty(self):
        return -torch.inf if self.kind == "max" else 0.0

    def borders(self):
        """The padding in other places or of other values."""
        padding = self.list("padding")
        if not any(padding) or not hasattr(self.named[self.input], "shape"):
            return
        empty = self.empty()
        none = {"padding": [0] * self.rank}
        sides = [(0, 2 * p) for p in padding]
        yield ("the padding is ignored: windows begin at the first element (shifted by the padding)",
               self.edit(none, lambda x: padded(x, sides, empty)))  # fmt: skip
        if self.kind == "max":
            yield ("wrong padding: zeros instead of nothing (a window of negative values gives zero)",
                   self.edit(none, lambda x: padded(x, [(p, p) for p in padding], 0.0)))  # fmt: skip
        else:
            yield "the padding is ignored: no results at the border", self.edit(none, middle=True)
        alone = range(self.rank) if self.rank > 1 else ()
        for by, axis in [(b, a) for a in (None, *alone) for b in (1, -1)]:
            moved = [(p - by, p + by) if p and axis in (None, i) else (p, p) for i, p in enumerate(padding)]
            yield (f"wrong padding: windows are shifted by one ({_shown([a for a, _ in moved])} in front "
                   f"instead of {_shown(padding)})",
                   self.edit(none, lambda x, m=moved: padded(x, m, empty)))  # fmt: skip
        flat = [p for pair in zip(reversed(padding), reversed(padding)) for p in pair]
        for mode, does in BORDERS.items():
            yield (f"wrong padding: the border {does} ({mode}) instead of being "
                   f"{'nothing' if self.kind == 'max' else 'zero'}",
                   self.edit(none, lambda x, m=mode: functional.pad(x, flat, mode=m)))  # fmt: skip

    def pools(self):
        """Another kind of pooling, or windows that lack an element."""
        if self.kind == "max":
            yield "wrong variant: the minimum (min) instead of the maximum", self.edit(
                {}, torch.neg, lambda out: type(out)((-out[0], *out[1:])) if isinstance(out, tuple) else -out)  # fmt: skip
        elif not self.list("padding") or not any(self.list("padding")):
            yield f"wrong variant: max pooling instead of {self.kind} pooling", self.over(_largest)
        if self.kind == "max":
            yield "wrong variant: average (mean) instead of max pooling", self.over(_average)
        for at, which in ((-1, "last"), (0, "first")):
            yield (f"dropped contribution: the {which} element of every window is missing",
                   self.over(lambda taps, at=at: self.lacking(taps, at)))  # fmt: skip
            if self.kind == "avg" and not self.named.get("divisor_override"):
                yield (f"dropped contribution: the {which} element of every window is missing (kernel_size too "
                       "small)", self.over(lambda x, at=at: self.counted(x, at), whole=True))  # fmt: skip

    def lacking(self, taps, at):
        rest = taps[:-1] if at else taps[1:]
        if self.kind == "max":
            return _largest(rest)
        return torch.stack(rest).sum(0) / (self.named.get("divisor_override") or len(taps))

    def counted(self, x, at):
        """Averages without one element over those that lie inside."""
        sums, counts = self.elements(x), self.elements(torch.ones_like(x))
        rest = slice(None, -1) if at else slice(1, None)
        return torch.stack(sums[rest]).sum(0) / torch.stack(counts[rest]).sum(0).clamp(min=1)

    def over(self, join, whole=False):
        """The call as `join`(list of the elements at each place of the windows), or `join`(input)."""

        def run(func, args, kwargs):
            out = func(*args, **kwargs)
            x = self.value(args, kwargs, self.input)
            joined = join(x if whole else self.elements(x))
            if isinstance(out, (tuple, list)):
                return type(out)((joined, *out[1:]))
            return joined

        return run

    def elements(self, x):
        step = self.list("stride") or self.size
        wide = self.list("dilation") or [1] * self.rank
        front = self.list("padding") or [0] * self.rank
        ends = self.ends()
        x = padded(x, [(p, max(e - p - n, 0)) for p, e, n in zip(front, ends, x.shape[-self.rank :])], self.empty())
        found = []
        for place in itertools.product(*(range(k) for k in self.size)):
            part = x
            for i, (at, d, s, n) in enumerate(zip(place, wide, step, self.shape[-self.rank :])):
                part = part.movedim(x.dim() - self.rank + i, 0)[at * d :: s][:n].movedim(0, x.dim() - self.rank + i)
            found.append(part)
        return found

    def groups(self):
        groups = self.named.get("groups", 1)
        if not isinstance(groups, int) or groups < 2:
            return

        def interleaved(x):
            return x.unflatten(1, (-1, groups)).transpose(1, 2).flatten(1, 2)

        def dealt(x):
            return x.unflatten(1, (groups, -1)).transpose(1, 2).flatten(1, 2)

        yield ("wrong groups: the channels of the input are dealt to the groups in turn (interleaved)",
               self.edit({}, interleaved))  # fmt: skip
        yield ("wrong groups: the channels of the groups are read interleaved", self.edit({}, dealt))
        yield ("wrong groups: the channels of the result are written interleaved",
               self.edit({}, after=dealt))  # fmt: skip
        yield (f"wrong groups: all {groups} groups read the channels of the first",
               self.edit({}, lambda x: x.narrow(1, 0, x.shape[1] // groups).repeat_interleave(groups, 1).unflatten(
                   1, (-1, groups)).transpose(1, 2).flatten(1, 2)))  # fmt: skip

    def taps(self):
        n = math.prod(self.size)
        for at, which in ((n - 1, "last"), (0, "first")) if n > 1 else ():
            yield (f"dropped contribution: the {which} of the {n} taps of the window is missing",
                   self.edit(taken=at))  # fmt: skip
        yield ("wrong index: the kernel is flipped (all axes of the window reversed)",
               self.edit(flip=True))  # fmt: skip

    def edit(self, changes=None, before=None, after=None, middle=False, last=False, taken=None, flip=False):
        """The call with other arguments: `changes` by name, `before`(input), `after`(result); with
        `middle` a result too small lies in the middle, with `last` the end of one too large counts; without the tap `taken`; with `flip` of
        the weight."""

        def run(func, args, kwargs):
            some = dict(changes or {})
            if before is not None:
                some[self.input] = before(self.value(args, kwargs, self.input))
            if taken is not None or flip:
                weight = self.value(args, kwargs, "weight")
                if flip:
                    weight = weight.flip(tuple(range(2, weight.dim())))
                else:
                    weight = weight.clone(memory_format=torch.contiguous_format)
                    weight.flatten(2).select(2, taken).zero_()
                some["weight"] = weight
            args, kwargs = self.with_changes(args, kwargs, some)
            out = func(*args, **kwargs)
            out = fitted(_end(out, self.shape) if last else out, self.shape, middle)
            return out if after is None else after(out)

        return run

    def value(self, args, kwargs, name):
        place = list(self.named).index(name)
        return args[place] if place < len(args) else kwargs[name]

    def with_changes(self, args, kwargs, some):
        names, args, kwargs = list(self.named), list(args), dict(kwargs)
        for name, new in some.items():
            place = names.index(name)
            if place < len(args):
                args[place] = new
            else:
                kwargs[name] = new
        return args, kwargs


def _adaptive_edits(name, named, shape):
    """Adaptive pooling with windows that end early or begin late, or of the other kind."""
    axes = [int(n) for n in name if n in "123"]
    x = named.get("input", named.get("self"))
    if not axes or not hasattr(x, "shape") or len(shape) != len(x.shape):
        return
    largest = "max" in name
    for text, first, last, other in (
        ("the end of each window is rounded down, its last elements are missing", _down, _down, False),
        ("the begin of each window is rounded up, its first elements are missing", _up, _up, False),
        ("average (mean) instead of max" if largest else "max instead of average", _down, _up, True),
    ):
        def edit(func, args, kwargs, first=first, last=last, most=largest != other):
            out = func(*args, **kwargs)
            held = args[0] if args else kwargs["input" if "input" in named else "self"]
            for axis in range(held.dim() - axes[0], held.dim()):
                held = _segments(held, axis, shape[axis], first, last, most)
            return type(out)((held, *out[1:])) if isinstance(out, (tuple, list)) else held

        yield f"{'wrong variant' if other else 'dropped contribution'}: {text}", edit


def _down(i, n, size):
    return i * n // size


def _up(i, n, size):
    return -(-i * n // size)


def _segments(x, axis, size, first, last, most):
    """The mean or the maximum of `size` segments of an axis."""
    n, parts = x.shape[axis], []
    for i in range(size):
        begin = min(first(i, n, size), n - 1)
        part = x.narrow(axis, begin, max(last(i + 1, n, size) - begin, 1))
        parts.append(part.amax(axis) if most else part.mean(axis))
    return torch.stack(parts, axis)


class Gradient(Window):
    """The gradients of a convolution, of which only mistakes are tried that leave the result of
    the convolution as large as it was."""

    def edits(self):
        old, padding = self.list("dilation"), self.list("padding")
        for new in _others("dilation", old, 1) if old and padding else ():
            wide = [p + (n - o) * (k - 1) // 2 for p, n, o, k in zip(padding, new, old, self.size)]
            if min(wide) >= 0:
                yield (f"wrong dilation: {_shown(new)} instead of {_shown(old)}, around the same middle",
                       self.edit({"dilation": new, "padding": wide}))  # fmt: skip
        yield from self.borders()

    def edit(self, changes=None, before=None, middle=False):
        def run(func, args, kwargs):
            x, some, sides = self.value(args, kwargs, "input"), dict(changes or {}), []
            if before is not None:
                some["input"] = before(x)
                sides = _place(before, x, self.rank)
            self.check(some.get("input", x), self.value(args, kwargs, "grad_output"), some)
            args, kwargs = self.with_changes(args, kwargs, some)
            first, *rest = func(*args, **kwargs)
            for axis, begin in enumerate(sides, x.dim() - self.rank) if first is not None else ():
                first = first.narrow(axis, begin, x.shape[axis])
            return first, *rest

        return run

    def check(self, x, grad, changes):
        held = {n: changes.get(n) or self.list(n) for n in ("stride", "dilation")}
        held["padding"] = changes.get("padding", self.list("padding"))
        for n, g, k, s, d, p in zip(x.shape[-self.rank :], grad.shape[-self.rank :], self.size,
                                    held["stride"], held["dilation"], held["padding"]):  # fmt: skip
            if (n + 2 * p - d * (k - 1) - 1) // s + 1 != g:
                raise LookupError("another size")


def _place(before, x, rank):
    """Where a tensor begins in what `before` makes of it, along each of its last axes."""
    mark = before(torch.ones_like(x[:1, :1]))[0, 0]
    if bool((mark == 1).all()):
        return [(n - m) // 2 for n, m in zip(mark.shape, x.shape[-rank:])]
    return mark.nonzero().amin(0).tolist()


def _largest(taps):
    return torch.stack(taps).amax(0)


def _average(taps):
    """The mean of what lies inside."""
    held = torch.stack(taps)
    return torch.where(held.isinf(), 0.0, held).sum(0) / len(taps)


def _others(name, old, plain):
    """Other numbers for the axes of a window."""
    news = [[plain] * len(old)] if plain is not None else []
    for i, j in itertools.combinations(range(len(old)), 2):
        news.append([old[j] if k == i else old[i] if k == j else v for k, v in enumerate(old)])
    news += [[v + by for v in old] for by in (1, -1)]
    for i in range(len(old)) if len(old) > 1 else ():
        news += [[*old[:i], old[i] + by, *old[i + 1 :]] for by in (1, -1)]
        if plain is not None:
            news.append([*old[:i], plain, *old[i + 1 :]])
    least = 0 if name.endswith("padding") else 1
    return [n for i, n in enumerate(news) if n != old and n not in news[:i] and min(n) >= least]


def _shown(values):
    return str(values[0]) if len(set(values)) == 1 else " x ".join(map(str, values))


def padded(x, sides, value):
    """`x` with (front, back) more elements along each of its last axes."""
    flat = [v for pair in reversed(sides) for v in pair]
    return functional.pad(x, flat, value=value)


def _end(out, shape):
    for axis, size in enumerate(shape):
        out = out.narrow(axis, max(out.shape[axis] - size, 0), min(size, out.shape[axis]))
    return out


def fitted(out, shape, middle=False):
    """A result in the shape that the right one has: cut, or with zeros behind it or, with
    `middle`, around it. Of several results the first."""
    if isinstance(out, (tuple, list)):
        return type(out)(fitted(t, shape, middle) if t.dim() == len(shape) else t for t in out)
    if out.dim() != len(shape):
        raise LookupError("another rank")
    for axis, size in enumerate(shape):
        if out.shape[axis] > size:
            out = out.narrow(axis, 0, size)
    missing = [size - n for size, n in zip(shape, out.shape)]
    if any(missing):
        out = padded(out, [(m // 2, m - m // 2) if middle else (0, m) for m in missing], 0.0)
    return out
