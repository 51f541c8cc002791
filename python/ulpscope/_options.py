# SPDX-License-Identifier: Apache-2.0
"""Command lines of the Python side. What is wrong with one is said in one sentence, as the
rest of the program does."""

import argparse


class Parser(argparse.ArgumentParser):
    """argparse without the page of usage in front of its message."""

    def error(self, message):
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")
