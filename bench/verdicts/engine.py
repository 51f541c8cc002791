# SPDX-License-Identifier: Apache-2.0
"""Judges the variants of cases and writes one JSON line for each, in several processes."""

import json
import multiprocessing
import os
import re
import time

import numpy as np
import torch

from . import variants
from .case import Case, seed_of
from .ops import OPS

GENERIC_PER_CASE = 6


def judge(case, tensors, standard=None):
    """The library's verdict on the outputs of one variant: the only place that calls it."""
    import ulpscope

    outputs = tensors[0] if len(tensors) == 1 else tuple(tensors)
    mutated = None
    if case.op.mutates:
        left = [t.clone() for t in tensors] + [a for a in case.args[len(tensors) :]]
        mutated = (_left(case, left), case.kwargs)
    return ulpscope.judge_call(case.op.fn, case.args, case.kwargs, outputs, mutated=mutated, standard=standard)


def _left(case, new):
    """Arguments as the device left them: of the fused optimizers p, g, m, v."""
    p, m, v = new[:3]
    return (p, case.args[1], m, v)


def record(case, variant, tensors, dropped=False, bits=None, standards=()):
    """What is kept of one judged variant."""
    line = {
        "op": case.op.name,
        "held": case.op.held,
        "profile": case.profile,
        "dtype": case.dtype,
        "seed": case.seed,
        "variant": variant.name,
        "class": variant.klass,
        "dropped": dropped,
        "true_bits": bits,
        "nominal": variants.NOMINAL.get(variant.name),
    }
    if dropped:
        return line
    start = time.thread_time()
    try:
        v = judge(case, tensors)
    except Exception as problem:
        return line | {"verdict": "raised", "sentence": repr(problem)[:300]}
    line |= {
        "verdict": v.verdict,
        "bits": number(v.effective_bits),
        "own": number(v.expected_bits),
        "cause": v.cause,
        "sentence": v.sentence,
        "notes": list(v.notes),
        "seconds": round(time.thread_time() - start, 4),
    }
    line["right_cause"] = named(variant, v.cause)
    line["silent"] = is_silent(v.cause)
    line["exceeded"] = max((share_off(case, i, t) for i, t in enumerate(tensors)), default=0.0)
    line["standards"] = {s: judge(case, tensors, s).verdict for s in standards}
    return line


def named(variant, cause):
    """Whether the cause names what was planted; None where nothing was."""
    words = variants.CAUSES.get(variant.name)
    return None if words is None else not is_silent(cause) and re.search(words, cause.lower()) is not None


def is_silent(cause):
    """Whether a cause names nothing: unknown, or told as what is seen alone."""
    return not cause or cause.startswith(("cause unknown", "looks like"))


def share_off(case, i, t):
    """Share of elements that are not the correct rounding of the truth."""
    truth = np.asarray(case.truth[i])
    if truth.dtype.kind != "f" or not truth.size:
        return 0.0
    from .rounding import OF_DTYPE, rounded

    right = rounded(truth, OF_DTYPE.get(t.dtype, "f32"))
    d = t.double().numpy()
    return float(np.mean((d != right) & ~(np.isnan(d) & np.isnan(right))))


def number(x):
    return None if x is None or x != x else round(float(x), 2)


def run_case(job):
    """All lines of one case. `job` is (operator, profile, dtype, seed, options)."""
    name, profile, dtype, seed, options = job
    if name == "documented":
        from .documented_run import lines as documented

        return list(documented(seed))
    torch.set_num_threads(1)
    np.seterr(all="ignore")
    op, lines = OPS[name], []
    case = Case(op, profile, dtype, seed)
    if options.get("real"):
        from .real import devices

        return list(devices(case, options))
    only = options.get("variant")
    for variant, tensors in case.correct():
        if "correct" not in options["what"]:
            break
        if wanted(variant, only, options, case):
            lines.append(record(case, variant, tensors, standards=options.get("standards", ())))
    if "faults" not in options["what"]:
        return lines
    for variant, tensors, dropped, bits in case.faults(99 if only else GENERIC_PER_CASE):
        if wanted(variant, only, options, case):
            lines.append(record(case, variant, tensors, dropped, bits, options.get("standards", ())))
    return lines


def wanted(variant, only, options, case):
    """Which variants are judged: those named, else a share of all by hash."""
    if only:
        return variant.name in only
    share = options.get("share", 1.0)
    return seed_of(case.key, variant.name, "share") < share * 2**32


def safely(job):
    try:
        return run_case(job)
    except Exception as problem:
        name, profile, dtype, seed, _ = job
        return [
            {
                "op": name,
                "profile": profile,
                "dtype": dtype,
                "seed": seed,
                "class": "broken",
                "held": False,
                "variant": "",
                "sentence": repr(problem)[:300],
            }
        ]


def run(jobs, path, processes, until=None):
    """Runs cases and appends their lines to a file; stops asking for more at `until`
    (time.monotonic). Gives the number of cases done."""
    os.environ["OMP_NUM_THREADS"] = "1"
    done = 0
    context = multiprocessing.get_context("spawn")
    with open(path, "a") as file, context.Pool(processes, maxtasksperchild=200) as pool:
        for lines in pool.imap_unordered(safely, jobs, chunksize=1):
            for line in lines:
                file.write(json.dumps(line) + "\n")
            file.flush()
            done += 1
            if until is not None and time.monotonic() > until:
                pool.terminate()
                break
    return done
