# SPDX-License-Identifier: Apache-2.0
"""The tables: false alarms, misses, causes and bits, from JSON lines."""

import json
from collections import Counter, defaultdict

ALARMS = ("reduced", "wrong", "nonfinite", "raised")
FAULTS = ("reduced", "formula", "generic", "documented")


def read(paths):
    lines = []
    for path in paths:
        with open(path) as file:
            lines += [json.loads(line) for line in file]
    return lines


def alarm(line):
    return line["verdict"] in ALARMS


def missed(line):
    return not alarm(line)


def share(part, whole):
    return f"{len(part):6} of {len(whole):6} = {100 * len(part) / max(1, len(whole)):6.2f} %"


def show(lines):
    broken = [x for x in lines if x["class"] == "broken"]
    for x in broken:
        print("broken:", x["op"], x["profile"], x["dtype"], x["sentence"])
    lines = [x for x in lines if x["class"] != "broken"]
    for title, part in (("all operators", lines), ("set aside", [x for x in lines if x["held"]])):
        print(f"\n== {title} ==")
        summary(part)
    judged = [x for x in lines if not x["dropped"]]
    by("operator", "op", judged)
    by("profile", "profile", judged)
    by("dtype", "dtype", judged)
    by("variant or fault", "variant", judged)
    standards(judged)
    return 0


def summary(lines):
    judged = [x for x in lines if not x["dropped"]]
    good = [x for x in judged if x["class"] == "correct"]
    print("false alarms        ", share([x for x in good if alarm(x)], good))
    print("unjudged correct    ", share([x for x in good if x["verdict"] == "unjudged"], good))
    for klass in FAULTS:
        faults = [x for x in judged if x["class"] == klass]
        lost = [x for x in faults if missed(x)]
        unjudged = sum(x["verdict"] == "unjudged" for x in lost)
        dropped = sum(x["dropped"] for x in lines if x["class"] == klass)
        print(f"missed {klass:13}", share(lost, faults), f"({unjudged} unjudged; {dropped} no fault)")
    caught = [x for x in judged if x["class"] in FAULTS and alarm(x) and x["right_cause"] is not None]
    for klass in FAULTS:
        some = [x for x in caught if x["class"] == klass]
        print(f"cause right {klass:8}", share([x for x in some if x["right_cause"]], some))
    print("cause right, all    ", share([x for x in caught if x["right_cause"]], caught))
    known = [x for x in judged if x["class"] == "reduced" and x["true_bits"] is not None
             and x["bits"] is not None and alarm(x)]  # fmt: skip
    print("bits within 1.5     ", share([x for x in known if near(x, "true_bits")], known))
    nominal = [x for x in known if x["nominal"] and x["dtype"] == "f32"]
    print("bits, nominal       ", share([x for x in nominal if near(x, "nominal")], nominal))
    print("seconds             ", round(sum(x.get("seconds", 0) for x in judged), 1))


def near(x, field):
    return abs(x["bits"] - x[field]) <= 1.5


def by(title, field, lines):
    groups = defaultdict(list)
    for x in lines:
        groups[x[field]].append(x)
    print(f"\n{title:22} correct alarms unjudged | faults missed | cause right % | bits off")
    for name, group in sorted(groups.items()):
        good = [x for x in group if x["class"] == "correct"]
        bad = [x for x in group if x["class"] in FAULTS]
        caught = [x for x in bad if alarm(x) and x["right_cause"] is not None]
        right = sum(x["right_cause"] for x in caught)
        off = sum(not near(x, "true_bits") for x in caught
                  if x["class"] == "reduced" and x["true_bits"] and x["bits"] is not None)  # fmt: skip
        n = Counter(x["verdict"] for x in good)
        print(f"{name:22} {len(good):7} {sum(map(alarm, good)):6} {n['unjudged']:8} |"
              f" {len(bad):6} {sum(map(missed, bad)):6} | {100 * right / max(1, len(caught)):13.0f} | {off:8}")


def standards(lines):
    names = sorted({s for x in lines for s in x.get("standards", {})})
    if not names:
        return
    print(f"\n{'standard':22} n  false alarms %  missed reduced %  formula %  generic %")
    for name in ["ulpscope", *names]:
        some = [x for x in lines if names[0] in x.get("standards", {})]
        verdict = (lambda x: x["verdict"]) if name == "ulpscope" else (lambda x: x["standards"][name])
        cells = []
        for klass in ("correct", "reduced", "formula", "generic"):
            group = [x for x in some if x["class"] == klass]
            hit = sum((verdict(x) not in ("pass", "unjudged")) == (klass == "correct") for x in group)
            cells.append(f"{100 * hit / max(1, len(group)):10.2f}")
        print(f"{name:22} {len(some):6}", *cells)
