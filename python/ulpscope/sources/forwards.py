# SPDX-License-Identifier: Apache-2.0
"""Forwards of modules as calls of a trace (`capture --level module`): what went in and came out,
also where a compiler runs what lies between. Needs what `apis.mode_for` does. Written down when
a module is left, inputs as they are then, with the number of calls before it was entered, so that
it is known what lies inside.
"""

import threading

from . import apis

NAME = "module.forward"  # src/call knows it: nothing that could be run again


class Forwards:
    """Writes down what `Modules` meets."""

    def __init__(self, session):
        self.session = session
        self.thread = threading.local()  # .begun: calls before each module that is open
        self.mode = apis.mode_for(session, lambda function: (NAME, frozenset()))

    def enter(self):
        """A module begins."""
        self._begun().append(self.session.counts()["calls"])

    def leave(self, args, output):
        """It ends; before the session leaves it."""
        if not self._begun():  # it began before the capture did
            return
        begun = self._begun().pop()
        self.thread.output = output
        try:
            self.mode.__torch_function__(self._forward, (), args, {"from": begun})
        finally:
            self.thread.output = None

    def _begun(self):
        try:
            return self.thread.begun
        except AttributeError:
            self.thread.begun = []
            return self.thread.begun

    def _forward(self, *inputs, **begun):
        return self.thread.output
