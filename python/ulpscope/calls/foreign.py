# SPDX-License-Identifier: Apache-2.0
"""The one net around what runs somebody's operator, kernel, script or module: `except Exception as problem:
foreign(problem)`. What arose in their code is handed on, to be told as a verdict or a reason; a mistake of
ours, whose innermost frame is ours, is raised again, for it is no statement about anybody's operator.

Whose a mistake is, the traceback tells. A call of a builtin or with too many arguments has no frame of its own
and would seem ours: such lines say `theirs(function, ...)`."""

from __future__ import annotations

import contextlib
import linecache
import opcode
import os
import sysconfig
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import TracebackType

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LIBRARY = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")})
INSTALLED = ("site-packages", "dist-packages")
# What a mistake in Python raises. RuntimeErrors are torch's way to refuse, OSErrors the machine's.
MISTAKES = (
    TypeError,
    AttributeError,
    NameError,
    LookupError,
    AssertionError,
    ArithmeticError,
    ValueError,
    StopIteration,
)
RAISE = opcode.opmap["RAISE_VARARGS"]
STRICT = "ULPSCOPE_STRICT"  # set by tests: our mistakes end even a host that they must not hurt
CAUSES = "causes"  # its value for those in a search for a cause as well: which trials run hangs on the machine's speed


class InternalError(Exception):
    """A mistake of ours that another process told of."""


def theirs(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Calls what is somebody's."""
    return function(*args, **kwargs)


def foreign(problem: BaseException) -> BaseException:
    """Hands on what arose in somebody's code; raises again what is a mistake of ours."""
    if is_ours(problem):
        raise problem
    return problem


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """Within: what arises in somebody's code ends the block, and nothing is learnt."""
    try:
        yield
    except Exception as problem:
        foreign(problem)


noted: list[str] = []  # what searches went on after


def note(words: str) -> None:
    """Keeps a mistake of ours for the end of the search."""
    if words not in noted:
        noted.append(words)


class tried:
    """The net around what finds causes, where nothing but a cause is lost: `told` hears of a mistake of ours, which
    is raised where tests of causes ask for it."""

    __slots__ = ("told",)

    def __init__(self, told: Callable[[str], object] = note) -> None:
        self.told = told

    def __enter__(self) -> tried:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(problem, Exception):
            return False
        if is_ours(problem):
            if os.environ.get(STRICT) == CAUSES:
                return False
            self.told(our_words(problem))
        return True


def is_ours(problem: BaseException) -> bool:
    """Whether an exception is a mistake in this package: it arose in a frame of ours, or of the standard
    library that we called, and nobody raised it on purpose."""
    if isinstance(problem, InternalError):
        return True
    if isinstance(problem, ImportError):
        return (problem.name or "").partition(".")[0] == "ulpscope"
    if not isinstance(problem, MISTAKES):
        return False
    innermost = at = _innermost(problem.__traceback__)
    while at is not None and _is_library(at.tb_frame.f_code.co_filename):
        at = _innermost(problem.__traceback__, at)
    if at is None or not _is_here(at.tb_frame.f_code.co_filename):
        return False
    if at.tb_frame.f_code is theirs.__code__:  # it was called with what it does not take
        code = getattr(at.tb_frame.f_locals["function"], "__code__", None)
        return code is not None and _is_here(code.co_filename)
    return at is not innermost or not _raises(at)


def our_words(problem: BaseException) -> str:
    """What a user is told of a mistake of ours, on one line."""
    text = " ".join(f"{problem}".split())
    if isinstance(problem, InternalError):
        return text
    at = _innermost(problem.__traceback__)
    while at is not None and not _is_here(at.tb_frame.f_code.co_filename):
        at = _innermost(problem.__traceback__, at)
    place = ""
    if at is not None:
        place = f" in {os.path.relpath(at.tb_frame.f_code.co_filename, HERE)}:{at.tb_lineno}"
    said = f"{type(problem).__name__}: {text}" if text else type(problem).__name__
    return f"internal error of ulpscope{place}, please report it: {said[:300]}"


def strictly(problem: BaseException) -> BaseException:
    """Where a host must not be hurt: under tests our own mistakes are raised all the same."""
    if os.environ.get(STRICT) and is_ours(problem):
        raise problem
    return problem


class unhurt:
    """The one net inside somebody's job, which we must never end: within, what goes wrong ends the block, and
    `told` hears of it; `failed` says so behind it. Under tests our own mistakes are raised all the same."""

    __slots__ = ("told", "failed")

    def __init__(self, told: Callable[[BaseException], object] | None = None) -> None:
        self.told, self.failed = told, False

    def __enter__(self) -> unhurt:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if not isinstance(problem, Exception) or (os.environ.get(STRICT) and is_ours(problem)):
            return False
        self.failed = True
        if self.told is not None:
            self.told(problem)
        return True


def _innermost(tb: TracebackType | None, before: TracebackType | None = None) -> TracebackType | None:
    """The last entry of a traceback, or the one before another."""
    found = None
    while tb is not None and tb is not before:
        found, tb = tb, tb.tb_next
    return found


def _is_here(name: str) -> bool:
    return name.startswith(HERE + os.sep)


def _is_library(name: str) -> bool:
    if name.startswith("<frozen "):
        return True
    return name.startswith(LIBRARY) and not any(part in name for part in INSTALLED)


def _raises(at: TracebackType) -> bool:
    """Whether the entry of a traceback is at a `raise`, which an assert ends in as well."""
    code = at.tb_frame.f_code
    line = linecache.getline(code.co_filename, at.tb_lineno)
    return code.co_code[at.tb_lasti] == RAISE and not line.lstrip().startswith("assert")
