# SPDX-License-Identifier: Apache-2.0
"""`python -m ulpscope.sources.started MODULE [ARGS]...`: how the program `ulpscope` runs a command
that is written in Python. It blocks Ctrl-C until here, so that one that comes while Python
starts is not answered with a traceback."""

import importlib
import signal
import sys


def main():
    """Runs MODULE's main; returns its exit code."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        module = importlib.import_module(sys.argv.pop(1))
        return module.main()
    except KeyboardInterrupt:
        print("ulpscope: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
