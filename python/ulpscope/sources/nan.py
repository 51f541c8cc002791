# SPDX-License-Identifier: Apache-2.0
"""Where NaN and Inf are born while a program trains.

`nan_tracker` is the public context manager. Calls come in as in a capture, as statistics
alone, and go through `usc_births` (ulpscope/flow.h) on the session's thread: no trace, no
file, memory for what lives. All wording is made in C, as for `ulpscope overflow`.
"""

import contextlib
import dataclasses
import json
import sys

from . import capture as _capture


@dataclasses.dataclass(frozen=True)
class Birth:
    """Where one NaN or Inf came from; `sentence` says all of it."""

    op: str
    step: int
    phase: str  # "forward", "backward", "optimizer"
    module: str
    kind: str  # "born", "turned" (of an Inf), "entered" (from outside: data, a parameter)
    value: str  # "NaN" or "Inf"
    inputs: str
    sentence: str
    call: int  # its number, from 1
    stack: tuple  # (file, line, function) of the program, innermost first


def _birth(found):
    frames = found.pop("frames")
    return Birth(**found, stack=tuple(tuple(f) for f in json.loads(frames)) if frames else ())


class nan_tracker:  # noqa: N801 - it is used like a function
    """
    Finds where NaN and Inf are born while the block runs: forward, backward, optimizer.

        with ulpscope.nan_tracker() as nan:
            train()
        for birth in nan.births():
            print(birth.sentence)

    A call is a birth where NaN or Inf comes out of finite inputs (kind "born"), where NaN is
    made of an Inf ("turned"), and where a NaN comes in that no call seen has made
    ("entered": the data, a parameter). Calls that only carry it on are none, nor is Inf that a
    number asked for (masked_fill(mask, -inf)).

    `births()` may be called in the block, too: it waits for the calls so far. Steps are
    counted as in `capture`; `steps` (a list, an int, "2,5-8"): watch these alone. `ops`: a
    PATTERN of operators; NaN of others then "entered". `keep`: the first so many births are
    kept, all are counted in `nan.n_births`. `on_birth`: "record"; "raise", a
    FloatingPointError where the step ends in which one was born; or a function, called
    there with each birth.

    Where tracking fails, or a capture runs already, the program goes on without: it is said
    on stderr, and `nan.error` holds the sentence. Raises ValueError for bad arguments.
    """

    def __init__(self, ops=None, steps=None, on_birth="record", keep=1000, step_by=None):
        from .. import _core
        from . import hooks as _hooks

        if step_by is not None and step_by not in _hooks.SOURCES:
            raise ValueError(f"step_by '{step_by}': one of {', '.join(_hooks.SOURCES)}")
        if on_birth not in ("record", "raise") and not callable(on_birth):
            raise ValueError(f"on_birth {on_birth!r}: 'record', 'raise' or a function")
        if not isinstance(keep, int) or keep < 1:
            raise ValueError(f"keep {keep!r}: one birth or more")
        self.wanted = None if steps is None else set(_capture.parse_steps(steps))
        self.on_birth = on_birth
        self.found = _core.Births(keep)
        self.recorder = _capture.Recorder(None, "stats", ops, births=self.found)
        self.hooks = _hooks.Steps(self._boundary, source=step_by)
        self.now = 0
        self.n_told = 0  # to on_birth
        self.error = None

    def births(self):
        """The births so far, as a list of `Birth`, in the order in which they came about."""
        with self._guarded():
            if self.recorder.session is not None:
                self.recorder.session.flush()
        return [_birth(b) for b in self.found.read(0)]

    @property
    def n_births(self):
        """How many there were so far, also those that `keep` left out."""
        return self.found.count()

    def step(self):
        """Ends a step, unless optimizer or data loader already do."""
        self.hooks.manual_end()

    def __enter__(self):
        with self._guarded():
            self.hooks.install()
            self._begin()
        return self

    def __exit__(self, kind, value, trace):
        with self._guarded():
            self.hooks.remove()
            self.recorder.end()
        with self._guarded():
            self.recorder.close()
        if kind is None:
            self._tell()
        return False

    def _begin(self):
        if self.wanted is None or self.now in self.wanted:
            self.recorder.begin(self.now)

    def _boundary(self):
        with self._guarded():
            failed = self.recorder.session and self.recorder.session.error()
            if failed:
                raise RuntimeError(failed)
            self.recorder.end(goes_on=self.wanted is None or self.now + 1 in self.wanted)
            self.now += 1
            self._begin()
        self._tell()

    def _tell(self):
        """Hands new births to on_birth. What that raises is for the program."""
        if self.on_birth == "record":
            return
        with self._guarded():
            if self.recorder.session is not None:
                self.recorder.session.flush()
        new = [_birth(b) for b in self.found.read(self.n_told)]
        self.n_told += len(new)
        if self.on_birth != "raise":
            for birth in new:
                self.on_birth(birth)
        elif new:
            raise FloatingPointError(new[0].sentence)

    @contextlib.contextmanager
    def _guarded(self):
        """What goes wrong in tracking ends it, never the program."""
        try:
            yield
        except Exception as error:
            self.hooks.active = False
            if self.error is None:
                self.error = f"NaN tracking failed: {error or type(error).__name__}"
                print(f"ulpscope: {self.error}; the program goes on", file=sys.stderr)
            with contextlib.suppress(Exception):
                self.recorder.close()
