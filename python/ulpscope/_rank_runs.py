# SPDX-License-Identifier: Apache-2.0
"""`ulpscope check TRACE` where TRACE holds a trace for each rank: one check after the other,
OUT/rank-N each, and the worst exit code. `ulpscope report OUT` shows them all. Needs no torch.
"""

import json
import os
import re
import sqlite3
import time
from argparse import Namespace
from contextlib import closing, suppress

from ._crew import Trouble


def ranks_of(trace):
    """Names of the folders rank-N in `trace`, by N; empty where it is a trace itself."""
    if os.path.exists(os.path.join(trace, "trace.db")) or not os.path.isdir(trace):
        return []
    found = [name for name in os.listdir(trace) if re.fullmatch(r"rank-\d+", name)
             and os.path.exists(os.path.join(trace, name, "trace.db"))]  # fmt: skip
    return sorted(found, key=lambda name: int(name[5:]))


def check_all(options, names, check, report, say):
    """Checks every rank; the exit code. `check(options)` is the check of one trace and
    `report(out, options)` shows what one has found."""
    if options.call is not None:
        raise Trouble(f"{options.trace} holds a trace for each rank: name the rank of call "
                      f"{options.call}, {options.trace}/{names[0]}#{options.call}")  # fmt: skip
    kept = kept_ranks(options, names)
    end = time.monotonic() + options.seconds if options.seconds is not None else None
    worst = 0
    for i, name in enumerate(names):
        say(f"{name}, {i + 1} of {len(names)}")
        part = of_rank(options, name)
        if end is not None:  # what is left, in equal shares
            part.seconds = max(0.001, (end - time.monotonic()) / (len(names) - i))
        code = report(part.out, part) if name in kept else check(part)
        if code == 130:
            return code
        worst = max(worst, code)
    return worst


def of_rank(options, name):
    """The options of one rank's check."""
    part = Namespace(**vars(options))
    part.trace, part.out = os.path.join(options.trace, name), os.path.join(options.out, name)
    if options.junit:
        stem, dot = os.path.splitext(options.junit)
        part.junit = f"{stem}.{name}{dot}"
    if options.baseline and os.path.isdir(os.path.join(options.baseline, name)):
        part.baseline = os.path.join(options.baseline, name)
    return part


def kept_ranks(options, names):
    """Ranks that are done in a job that was cut short: it goes on with the others. Where all
    are done, or what computed is not the same for all, nothing is kept."""
    runs = {name: run_of(os.path.join(options.out, name)) for name in names}
    done = [name for name in names if runs[name].get("state") == "done"]
    inputs = {runs[name].get("inputs") for name in names if runs[name]}
    if options.force or len(done) == len(names) or len(inputs) != 1:
        return []
    return [name for name in done if _same_files(runs[name])]


def _same_files(run):
    """Whether the files that computed are what they were."""
    from ._identity import digest

    facts = json.loads(run.get("inputs") or "{}")
    files = {key[5:]: value for key, value in facts.items() if key.startswith("file ")}
    with suppress(OSError):
        return all(digest(path) == value for path, value in files.items())
    return False


def run_of(out):
    """Table run of the results in a folder; {} where there is none to be read."""
    path = os.path.abspath(os.path.join(out, "result.db"))
    if not os.path.exists(path):
        return {}
    with suppress(sqlite3.Error):
        with closing(sqlite3.connect(f"file:{_quoted(path)}?mode=ro", uri=True)) as db:
            return dict(db.execute("SELECT key, value FROM run"))
    return {}


def _quoted(path):
    return re.sub(r"[?#%]", lambda found: f"%{ord(found[0]):02X}", path)
