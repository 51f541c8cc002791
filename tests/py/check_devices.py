# SPDX-License-Identifier: Apache-2.0
"""Devices for tests of the whole command: `--device python:check_devices:NAME`. What they
do to which operator comes from CHECK_FAULT, e.g. "gelu=crash,mm=scale"."""

import os
import signal
import time

SEARCH = """
import os, shutil, signal, sqlite3, tempfile, time, ulpscope.causes.diagnose as d
honest, path = d.search, os.environ["SEARCH_LOG"]
ends = dict(e.split("=") for e in os.environ["SEARCH"].split(",") if e)
def search(call, verdict, limit, known=""):
    copy = tempfile.mkdtemp(dir=os.path.dirname(path))  # as a check that was killed leaves it
    for name in ("result.db", "result.db-wal"):
        shutil.copy(os.path.join(path, name), copy)
    with sqlite3.connect(os.path.join(copy, "result.db")) as db:
        seen = db.execute("SELECT verdict FROM verdict ORDER BY call").fetchall()
    with open(path + ".log", "a") as log:
        print(known or "any", call.op, *(v for v, in seen), file=log)
    what = ends.get(call.op.split("::")[1])
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(600)
    if what == "killed":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    return honest(call, verdict, limit, known)
d.search = search
"""
if "SEARCH" in os.environ:  # what the process that searches for causes does
    from ulpscope.causes import host

    if "SEARCH_FORKED" not in os.environ:
        host.end()  # one that waits has not got it
    head, _, tail = host.BOOT.partition("from ulpscope")
    host.BOOT = f"{head}exec({SEARCH!r}); from ulpscope{tail}"

FAULTS = dict(f.split("=") for f in os.environ.get("CHECK_FAULT", "").split(",") if f)
LEFT = {}  # what was computed last, by its sizes


def device(op, args, kwargs):
    """Computes as the CPU does, but for the planted faults."""
    kind = FAULTS.get(str(op).split(".")[1])
    if kind == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if kind == "hang":
        time.sleep(600)
    if kind == "missing":
        raise NotImplementedError(f"Could not run '{op}' on this device")
    if kind == "odd":
        raise KeyError("of its own kind")
    if kind == "dead":
        raise RuntimeError("uncorrectable memory error")
    if kind == "half":
        return half(op, args, kwargs)
    out = op(*args, **kwargs)
    if kind == "stale":
        return LEFT.get(out.shape, out).clone()
    LEFT[getattr(out, "shape", None)] = out
    if kind == "identity":
        return args[0].clone()
    return out * 1.01 if kind == "scale" else out


def half(op, args, kwargs):
    """Computes in float16."""

    def low(value):
        if isinstance(value, (list, tuple)):
            return type(value)(low(v) for v in value)
        return value.half() if hasattr(value, "half") else value

    out = op(*low(args), **kwargs)
    return out.float() if hasattr(out, "float") else tuple(t.float() for t in out)


def slow(op, args, kwargs):
    """Says through one fifo that it works on a call and waits at another."""
    with open(os.environ["CHECK_WORKS"], "wb", buffering=0) as works:
        works.write(b"%d." % os.getpid())
    with open(os.environ["CHECK_GO"], "rb", buffering=0) as go:
        go.read(1)
    return op(*args, **kwargs)
