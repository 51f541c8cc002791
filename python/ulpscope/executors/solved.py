# SPDX-License-Identifier: Apache-2.0
"""What is solved for a matrix: inverses, systems of equations, factors, determinants. Honest algorithms of these
(elimination by rows or columns, reflections, blocks with their inverses) have nothing in common but that each gives
the result of a matrix a rounding away from the one that it was given; how far apart the results lie is for the
condition to say. So another algorithm is a run on such a matrix. Serves `noise`. Needs of torch: how schemas name
arguments."""

from __future__ import annotations

import torch

from ..calls.torch_private import OpOverload

COLUMNS, ELEMENTS = "columns", "elements"  # what a rounding is one of: of the largest of a column, of each element

# operator: (argument that is the matrix, what it loses). What is triangular is substituted, which errs by element.
SOLVED = {
    **dict.fromkeys(("linalg_inv_ex", "linalg_lu_factor_ex", "_linalg_det", "_linalg_slogdet"), ("A", COLUMNS)),
    **dict.fromkeys(("_linalg_solve_ex", "linalg_lu", "linalg_qr"), ("A", COLUMNS)),
    **dict.fromkeys(("linalg_lstsq", "linalg_pinv", "linalg_ldl_factor_ex", "linalg_cholesky_ex"), ("self", COLUMNS)),
    **dict.fromkeys(("_linalg_eigh", "_linalg_svd"), ("A", COLUMNS)),
    **dict.fromkeys(("linalg_eig", "linalg_eigvals", "_linalg_eigvals", "cholesky", "geqrf"), ("self", COLUMNS)),
    **dict.fromkeys(("linalg_solve_triangular", "cholesky_inverse"), ("self", ELEMENTS)),
    **dict.fromkeys(("triangular_solve",), ("A", ELEMENTS)),
    **dict.fromkeys(("cholesky_solve",), ("input2", ELEMENTS)),
    **dict.fromkeys(("linalg_lu_solve", "linalg_ldl_solve"), ("LU", ELEMENTS)),
}
EACH_WAY = 2  # of elements: blocks are inverted before they are used


def nearby(func: OpOverload, args: tuple, kwargs: dict, generator: torch.Generator, across: bool) -> tuple[tuple, dict]:
    """The arguments of an operator, with its matrix a rounding away where it solves for one; `across`: rows for
    columns, which is what an algorithm on the transposed matrix does."""
    name, what = SOLVED.get(func._schema.name.split("::")[1], (None, None))
    for i, argument in enumerate(func._schema.arguments):
        if argument.name != name:
            continue
        if i < len(args):
            return (*args[:i], _moved(args[i], what, generator, across), *args[i + 1 :]), kwargs
        return args, kwargs | {name: _moved(kwargs[name], what, generator, across)}
    return args, kwargs


def _moved(matrix, what, generator, across):
    if matrix.dtype not in (torch.float32, torch.complex64) or matrix.dim() < 2:
        return matrix
    size = matrix.abs()
    if what == COLUMNS:
        size = size.amax(-1 if across else -2, keepdim=True)
    size = size * (torch.finfo(torch.float32).eps / 2 * (EACH_WAY if what == ELEMENTS else 1))
    parts = torch.view_as_real(matrix.contiguous()) if matrix.is_complex() else matrix
    size = size.unsqueeze(-1) if matrix.is_complex() else size
    noise = torch.rand(parts.shape, dtype=torch.float64, generator=generator).mul_(2).sub_(1)
    moved = (parts + noise * size).to(parts.dtype)
    return torch.view_as_complex(moved) if matrix.is_complex() else moved
