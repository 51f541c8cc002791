# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope.program.started MODULE [ARGS]...`: how the program `ulpscope` runs a command
that is written in Python. It blocks Ctrl-C until here, so that one that comes while Python
starts is not answered with a traceback."""

from __future__ import annotations

import importlib
import signal
import sys

from .waiting import waiting

COMMANDS = {
    "ulpscope.session.repro": "repro",
    "ulpscope.session.amplified": "diff",
    "ulpscope.fuzzer.fuzz_repro": "fuzz",
    "ulpscope.fuzzer.examples": "fuzz",
    "ulpscope.fuzzer.spec": "fuzz",
}  # that take their time


def main() -> int:
    """Runs MODULE's main; returns its exit code."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        name = sys.argv.pop(1)
        if name in COMMANDS:
            waiting.begin(COMMANDS[name], "loading torch")
        return int(importlib.import_module(name).main())
    except KeyboardInterrupt:
        print("ulpscope: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        waiting.end()


if __name__ == "__main__":
    sys.exit(main())
