# SPDX-License-Identifier: Apache-2.0
"""Matrix products held to checksums while a model trains: the sum of a row of the result against the
row of the left side times the row sums of the right side. docs/reference/watch-reference.md has both bounds.

`Linears` takes one of n calls of nn.Linear, forward and both products of its backward (mode sound);
the sums stay on the device until they have come, the bound and what follows from it are C's
(ulpscope/x/watch_products.h). `Matmuls` is what mode asd does while its checksum is on: torch.matmul and
Tensor.matmul of bfloat16. Results of the program are only read.

Needs of torch: forward hooks, hooks of autograd's nodes; that torch.matmul can be replaced."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch

from .. import _core
from ..calls import torch_older
from ..calls.torch_older import is_compiling
from ..program import hooks
from . import watch_rows

COLUMNS = _core.product_columns
MOST_WAITING = 16  # products of which the operands are kept until their sums have come
SITES = ("matmul", "matmul_input", "matmul_weight")
HOPS = 4  # from a result to the node of its product: views lie between


def _unit(result: torch.Tensor) -> float:
    """Unit roundoff of the accumulation, where float32 matmuls may be cut down; 0: the usual one."""
    narrow = result.dtype == torch.float32 and result.is_cuda and torch.backends.cuda.matmul.allow_tf32
    return 2.0**-11 if narrow else 0.0


class WatchedProduct:
    """Y = A B^T + bias as matrices, all of them in the dtype in which they were multiplied."""

    def __init__(self, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor) -> None:
        self.y = y.detach().reshape(-1, y.shape[-1])
        self.a = a.detach().reshape(self.y.shape[0], -1).to(y.dtype)
        self.b = b.detach().to(y.dtype)
        self.bias = None if bias is None else bias.detach().to(y.dtype)
        self.dtype, self.unit = str(y.dtype).removeprefix("torch."), _unit(y)

    @property
    def inner(self) -> int:
        """How many terms an element has."""
        return int(self.a.shape[1])

    def kept(self) -> WatchedProduct:
        """The same with memory of its own."""
        return WatchedProduct(
            self.a.clone(), self.b.clone(), None if self.bias is None else self.bias.clone(), self.y.clone()
        )

    def sums(self) -> torch.Tensor:
        """(rows, blocks of columns, 4) in float64, on the device: sum, expected, squares, terms."""
        y, a, b = (_blocks(t, axis) for t, axis in ((self.y, 1), (self.a, None), (self.b, 0)))
        expected = a @ b.sum(1).T
        if self.bias is not None:
            expected = expected + _blocks(self.bias, 0).sum(1)
        terms = a.square_() @ b.square_().sum(1).T  # copies all of them
        return torch.stack((y.sum(2), expected, y.square_().sum(2), terms), -1)

    def again(self, line: int) -> tuple[float, ...]:
        """What the sum at that line of the table is when it is computed again: in the same way, transposed,
        and in float64 in halves, rounded once. It waits for the device."""
        row, block = divmod(line, -(-self.b.shape[0] // COLUMNS))
        columns = slice(block * COLUMNS, (block + 1) * COLUMNS)
        same = torch.nn.functional.linear(self.a, self.b, self.bias)[row, columns]
        other = (self.b @ self.a.T).T[row, columns]
        half = self.inner // 2
        x, w = self.a[row].double(), self.b[columns].double()
        wide = w[:, half:] @ x[half:] + w[:, :half] @ x[:half]
        if self.bias is not None:
            other, wide = other + self.bias[columns], wide + self.bias[columns].double()
        return tuple(torch.stack([t.double().sum() for t in (same, other, wide.to(self.y.dtype))]).tolist())


def _blocks(t: torch.Tensor, axis: int | None) -> torch.Tensor:
    """A copy in float64; along `axis` filled up with zeros and cut into blocks."""
    wide = t.double() if t.dtype != torch.float64 else t.clone()
    if axis is None:
        return wide
    short = -wide.shape[axis] % COLUMNS if wide.shape[axis] > COLUMNS else 0
    if short:
        wide = torch.nn.functional.pad(wide, (0, 0) * (wide.ndim - 1 - axis) + (0, short))
    return wide.unflatten(axis, (-1, min(COLUMNS, wide.shape[axis])))


def verdict(product: WatchedProduct, sums: torch.Tensor) -> tuple[float, int]:
    """(error / bound, 0: as it came, 1: wrong and right when computed again, 2: wrong again) of sums that
    have come. A suspicion that two other ways of computing it do not share is taken back: 0.0."""
    over, line = _core.product_over(sums, product.dtype, product.inner, product.unit)
    if over <= 1:
        return over, 0
    a, b, c, d = sums.view(-1, 4)[line].tolist()
    how = _core.product_settle(product.dtype, product.inner, product.unit, (a, b, c, d), product.again(line))
    return (over, how) if how else (0.0, 0)


def asd_abnormal(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, matmul: Callable[..., Any]) -> torch.Tensor:
    """torch_npu's checksum: 1.0 where it suspects the product and another one differs, else 0.0."""
    rows = c.float().sum(-1)
    error = (rows - (a.float() @ b.float().sum(-1).unsqueeze(-1)).squeeze(-1)).abs()
    size = c.abs().float()
    most, mean = size.amax(-1), c.abs().mean(-1).float()
    n = c.shape[-1]
    spread = (most / mean).amin() > 5
    allowed = torch.where(spread, most * 2.0**-8 * n**0.5, mean * 2.0**-8 * n)
    suspect = (error - 5 * allowed > 5e-20).any()
    again = (matmul(a, b).abs().mean(-1) != c.abs().mean(-1)).any()
    return (suspect & again).double()


class Products:
    """Products on their way: `take` begins a check, `ready` gives what those that have come are."""

    def __init__(self) -> None:
        self.waiting: collections.deque[Any] = collections.deque()
        self.n_lost = 0

    def take(self, tag: tuple[int, str, int], product: WatchedProduct) -> None:
        """On the CPU at once; elsewhere operands and result are kept until the sums have come."""
        if product.y.is_cpu:
            self.waiting.append((tag, *verdict(product, product.sums()), None))
            return
        if product.y.device.type in watch_rows.NO_DOUBLES:
            return
        host = watch_rows.to_host(product.sums())
        event = torch_older.event(product.y.device)
        event.record()
        self.waiting.append((tag, product.kept(), host, event))
        if len(self.waiting) > MOST_WAITING:
            self.waiting.popleft()
            self.n_lost += 1

    def ready(self) -> list[tuple[tuple[int, str, int], float, int]]:
        """[(tag, error / bound, as in `verdict`)], oldest first."""
        come = []
        while self.waiting and (self.waiting[0][3] is None or self.waiting[0][3].query()):
            tag, first, second, event = self.waiting.popleft()
            come.append((tag, first, second) if event is None else (tag, *verdict(first, second)))
        return come


class Linears:
    """Takes one of `every` forward calls of the model's nn.Linear, and what its backward computes:
    `told(module, site, a, b, bias, y)` with y = a b^T + bias."""

    def __init__(self, model: torch.nn.Module, every: int, told: Callable[..., Any]) -> None:
        self.every, self.told, self.n = every, told, 0
        self.handles = [
            module.register_forward_hook(self._after)
            for module in model.modules()
            if isinstance(module, torch.nn.Linear)
        ]

    def _after(self, module: torch.nn.Module, args: Any, result: torch.Tensor) -> None:
        if is_compiling() or not (module.training and torch.is_grad_enabled()):
            return
        self.n += 1
        # the weight of this call, which a functional one has put there; one that is computed at each look
        # (a parametrization, with a state perhaps) is not looked at
        weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
        known = weight is not None and args and result.dtype.is_floating_point and not hasattr(result, "to_local")
        known = known and not hasattr(module, "parametrizations")
        if self.n % self.every == 0 and known and result.numel() > 0 and args[0].numel() > 0:
            x = args[0].detach()
            self.told(module, SITES[0], x, weight, bias, result)
            self._follow(module, weight, x, result)

    def _follow(self, module: torch.nn.Module, weight: torch.Tensor, x: torch.Tensor, result: torch.Tensor) -> None:
        """Waits for the backward of this call, if there is one that is known."""
        node = result.grad_fn
        for _ in range(HOPS):
            if node is None:
                return
            if node.name() in ("AddmmBackward0", "MmBackward0", "LinearBackward0"):
                self._wait_for(node, module, weight, x)
                return
            node = node.next_functions[0][0] if node.next_functions else None

    def _wait_for(self, node: Any, module: torch.nn.Module, weight: torch.Tensor, x: torch.Tensor) -> None:
        linear = node.name() == "LinearBackward0"
        node.register_hook(lambda into, out: self._backward(module, linear, weight, x, into, out))

    def _backward(
        self, module: torch.nn.Module, linear: bool, weight: torch.Tensor, x: torch.Tensor, into: Any, out: Any
    ) -> None:
        """`into`: gradients of the node's inputs; the weight is there transposed, but of linear's own node."""
        grad = out[0]
        grad_x, grad_weight = into[:2] if linear else into[-2:]
        if grad is None or not self.handles:
            return
        columns = grad.reshape(-1, grad.shape[-1]).T
        if grad_x is not None:
            self.told(module, SITES[1], grad, weight.T, None, grad_x)
        if grad_weight is not None:
            inputs = x.reshape(-1, x.shape[-1]).T
            a, b = (columns, inputs) if linear else (inputs, columns)
            self.told(module, SITES[2], a, b, None, grad_weight)

    def remove(self) -> None:
        """Takes the hooks out."""
        handles, self.handles = self.handles, []
        for handle in handles:
            handle.remove()


class Matmuls:
    """While it is there, each matmul of bfloat16 is told, of matrices, batches of them, and a vector from
    the left: `told(a, b, c, matmul)`. What is multiplied by a vector has one number in a row, and no sum."""

    def __init__(self, told: Callable[..., Any]) -> None:
        self.told = told
        places = (torch, "matmul"), (torch.Tensor, "matmul"), (torch.Tensor, "__matmul__")
        self.undo = [hooks.around(*place, self._matmul) for place in places]

    def _matmul(self, original: Callable[..., Any], a: torch.Tensor, b: Any, *args: Any, **kwargs: Any) -> Any:
        c = original(a, b, *args, **kwargs)
        both = isinstance(b, torch.Tensor) and a.dtype == b.dtype == torch.bfloat16
        if both and a.ndim >= 1 and b.ndim >= 2 and c.numel() > 0:
            self.told(a.detach(), b.detach(), c.detach(), original)
        return c

    def remove(self) -> None:
        """Takes them out."""
        for undo in self.undo:
            undo()
