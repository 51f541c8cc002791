# SPDX-License-Identifier: Apache-2.0
"""The tables: false alarms, misses, causes and bits, from JSON lines."""

import json
from collections import Counter, defaultdict

ALARMS = ("reduced", "wrong", "nonfinite", "raised")
OTHER_ALARMS = (*ALARMS, "warning", "error", "fail", "failed")
FAULTS = ("reduced", "formula", "generic", "documented")
WITHIN = 1.5  # bits


def read(paths):
    lines = []
    for path in paths:
        with open(path) as file:
            lines += [json.loads(line) for line in file]
    return lines


def alarm(line):
    return line["verdict"] in ALARMS


def of(lines, *classes):
    return [x for x in lines if x["class"] in classes]


def percent(part, whole):
    return f"{len(part):6} of {len(whole):6} = {100 * len(part) / max(1, len(whole)):6.2f} %"


def show(lines):
    """Prints everything that the lines hold."""
    for x in of(lines, "broken"):
        print("the benchmark itself failed:", x["op"], x["profile"], x["dtype"], x["sentence"])
    planted = of(lines, "correct", *FAULTS)
    if planted:
        _planted(planted)
    if of(lines, "real"):
        _real(of(lines, "real"))
    return 0


def _planted(lines):
    for title, part in (("all operators", lines), ("set aside", [x for x in lines if x["held"]])):
        if part:
            print(f"\n== {title} ==")
            _summary(part)
    judged = [x for x in lines if not x["dropped"]]
    for title, field in (
        ("operator", "op"),
        ("profile", "profile"),
        ("dtype", "dtype"),
        ("variant or fault", "variant"),
    ):
        _by(title, field, judged)
    _standards(judged)


def _summary(lines):
    judged = [x for x in lines if not x["dropped"]]
    good = of(judged, "correct")
    print("false alarms          ", percent([x for x in good if alarm(x)], good))
    print("unjudged correct      ", percent([x for x in good if x["verdict"] == "unjudged"], good))
    for klass in FAULTS:
        faults = of(judged, klass)
        lost = [x for x in faults if not alarm(x)]
        note = f"({sum(x['verdict'] == 'unjudged' for x in lost)} unjudged; "
        note += f"{sum(x['dropped'] for x in of(lines, klass))} left out as no fault)"
        print(f"missed, {klass:14}", percent(lost, faults), note)
    caught = [x for x in of(judged, *FAULTS) if alarm(x) and x["right_cause"] is not None]
    for klass in FAULTS:
        some = of(caught, klass)
        print(f"cause right, {klass:9}", percent([x for x in some if x["right_cause"]], some))
        print(f"named else, {klass:10}", percent([x for x in some if is_named_else(x)], some))
    print("cause right, all      ", percent([x for x in caught if x["right_cause"]], caught))
    print("named else, all       ", percent([x for x in caught if is_named_else(x)], caught))
    known = bits_known(judged)
    print("bits within 1.5       ", percent([x for x in known if near(x, "true_bits")], known))
    nominal = [x for x in known if x["nominal"] and x["dtype"] == "f32" and x["profile"] == "normal"]
    print("bits, nominal, normal ", percent([x for x in nominal if near(x, "nominal")], nominal))
    print("seconds of judging    ", round(sum(x.get("seconds", 0) for x in judged), 1))


def is_named_else(line):
    """Whether a cause names something that was not planted."""
    return not line["right_cause"] and not line.get("silent", True)


def bits_known(lines):
    """Accused reduced outputs whose bits the independent estimate knows."""
    return [x for x in of(lines, "reduced") if x["true_bits"] is not None and x.get("bits") is not None and alarm(x)]


def near(line, field):
    return abs(line["bits"] - line[field]) <= WITHIN


def _by(title, field, lines):
    groups = defaultdict(list)
    for x in lines:
        groups[x[field]].append(x)
    print(f"\n{title:36} correct alarms unjudged | faults missed | cause right % | bits off")
    for name, group in sorted(groups.items()):
        good, bad = of(group, "correct"), of(group, *FAULTS)
        caught = [x for x in bad if alarm(x) and x["right_cause"] is not None]
        right = 100 * sum(x["right_cause"] for x in caught) / max(1, len(caught))
        known = bits_known(group)
        off = f"{sum(not near(x, 'true_bits') for x in known)}/{len(known)}"
        unjudged = Counter(x["verdict"] for x in good)["unjudged"]
        print(
            f"{name:36} {len(good):7} {sum(map(alarm, good)):6} {unjudged:8} |"
            f" {len(bad):6} {sum(not alarm(x) for x in bad):6} | {right:13.0f} | {off:>8}"
        )


# ---- other rules on the same cases ---------------------------------------------------------


def _standards(lines):
    lines = [x for x in lines if x.get("standards")]
    names = sorted({s for x in lines for s in x["standards"]})
    if not names:
        return
    print(f"\nThe same {len(lines):,} outputs under every standard, in %; warning counts as an alarm")
    print(f"{'standard':22} dtype false alarms unjudged | missed: reduced    formula    generic")
    for name in ["ulpscope", *names]:
        print(f"{name:22} all  ", *_cells(lines, name))
        for dtype in ("f32", "bf16", "f16"):
            print(f"{'':22} {dtype:5}", *_cells([x for x in lines if x["dtype"] == dtype], name))
    _worst_of_standards(lines, ["ulpscope", *names])


def verdict_of(line, name):
    return line["verdict"] if name == "ulpscope" else line["standards"].get(name, "unjudged")


def _cells(lines, name):
    cells = []
    for klass in ("correct", "reduced", "formula", "generic"):
        verdicts = Counter(verdict_of(x, name) for x in of(lines, klass))
        n = max(1, sum(verdicts.values()))
        alarms = sum(verdicts[a] for a in OTHER_ALARMS)
        hit = alarms if klass == "correct" else n - alarms
        cells.append(f"{100 * hit / n:10.2f}")
        if klass == "correct":
            cells.append(f"{100 * verdicts['unjudged'] / n:8.2f} |")
    return cells


def _worst_of_standards(lines, names, most=4):
    """Which operators and which faults each standard gets wrong most often."""
    print(f"\n{'standard':22} accuses correct kernels of | passes")
    for name in names:
        alarms = Counter(x["op"] for x in of(lines, "correct") if verdict_of(x, name) in OTHER_ALARMS)
        misses = Counter(x["variant"] for x in of(lines, *FAULTS) if verdict_of(x, name) not in OTHER_ALARMS)
        cells = (", ".join(f"{k} {n}" for k, n in c.most_common(most)) for c in (alarms, misses))
        print(f"{name:22}", " | ".join(cells))


# ---- released kernels ------------------------------------------------------------------------


def _real(lines):
    print("\n== released kernels ==")
    print(f"{'device':16} {'dtype':6} {'judged':>7} {'unjudged':>8} {'alarms':>7} {'confirmed':>9} {'false':>6}")
    groups = defaultdict(list)
    for x in lines:
        groups[x["variant"], x["dtype"]].append(x)
    for (device, dtype), group in sorted(groups.items()):
        alarms = [x for x in group if alarm(x)]
        sure = sum(x["confirmed"] for x in alarms)
        unjudged = sum(x["verdict"] == "unjudged" for x in group)
        print(
            f"{device:16} {dtype:6} {len(group) - unjudged:7} {unjudged:8} {len(alarms):7}"
            f" {sure:9} {len(alarms) - sure:6}"
        )
    print(
        "\nfloat32 alarms, each with the share of elements that are not the correct rounding\n(and that of an "
        "honest kernel)"
    )
    for x in sorted(lines, key=lambda x: (x["op"], x["profile"])):
        if alarm(x) and x["dtype"] == "f32":
            print(
                f"{x['op']:20} {x['profile']:8} {x['variant']:12} confirmed={x['confirmed']!s:5} "
                f"{100 * x['exceeded']:5.1f} ({100 * x['honest']:.1f}) %  {x['sentence'][:110]}"
            )
