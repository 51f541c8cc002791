# SPDX-License-Identifier: Apache-2.0
"""Devices for tests of the whole command: `--device python:check_devices:NAME`. What they
do to which operator comes from CHECK_FAULT, e.g. "gelu=crash"."""

import os
import signal
import time

FAULTY, _, KIND = os.environ.get("CHECK_FAULT", "").partition("=")


def device(op, args, kwargs):
    """Computes as the CPU does, but for the planted fault."""
    if str(op).split(".")[1] != FAULTY:
        return op(*args, **kwargs)
    if KIND == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if KIND == "hang":
        time.sleep(600)
    if KIND == "scale":
        return op(*args, **kwargs) * 1.01
    if KIND == "missing":
        raise NotImplementedError(f"Could not run '{op}' on this device")
    if KIND == "dead":
        raise RuntimeError("uncorrectable memory error")
    return op(*args, **kwargs)


def slow(op, args, kwargs):
    """Takes its time and says on a pipe that it works on a call."""
    os.write(int(os.environ["CHECK_PIPE"]), b".")
    os.read(int(os.environ["CHECK_GO"]), 1)
    return op(*args, **kwargs)
