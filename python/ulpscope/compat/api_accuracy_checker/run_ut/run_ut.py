# SPDX-License-Identifier: Apache-2.0
"""The document's run_ut.py. Needs of torch what the package's __init__ says."""

from __future__ import annotations


def main(script: str | None = None) -> int:
    """Runs it; the exit code where that did not begin."""
    from ulpscope.compat.api_accuracy_checker.run_ut import hand_over

    return hand_over("run_ut", script)


if __name__ == "__main__":
    raise SystemExit(main(__file__))
