# SPDX-License-Identifier: Apache-2.0
"""Command lines of the Python side. What is wrong with one is said in one sentence, as the
rest of the program does."""

import argparse
import difflib


class Parser(argparse.ArgumentParser):
    """argparse without the page of usage in front of its message."""

    def error(self, message):
        message += self._meant(message)
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def _meant(self, message):
        """What an option that is not there may have meant, as a clause."""
        what, _, words = message.partition(": ")
        if what != "unrecognized arguments" or not words.startswith("-"):
            return ""
        given = words.split()[0].split("=")[0]
        near = difflib.get_close_matches(given, self._option_string_actions, 1, 0.7)
        return f"; did you mean {near[0]}?" if near else ""
