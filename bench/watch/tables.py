# SPDX-License-Identifier: Apache-2.0
"""The tables of `./run bench watch`, from its lines."""

from __future__ import annotations

import collections
import json
import statistics
from pathlib import Path
from typing import Any

from .hard import rate_bound
from .plant import FIELDS

Rows = list[dict[str, Any]]
NAMES = (
    "ours",
    "audit",
    "neighbour",
    "default",
    "v3",
    "v3+sum",
    "v2",
    "megatron",
    "turbulence",
    "zscore",
    "nan",
    "replicas",
)
FACTORS = (0.5, 0.7, 1.0, 1.4, 2.0)


def read(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


def hit(row: dict[str, Any], name: str) -> bool:
    """Whether it was seen, not by chance alone: whoever alarms in the clean window as well has seen nothing."""
    return bool(row["seen"].get(name))


def percent(rows: Rows, name: str) -> str:
    return f"{100 * sum(hit(r, name) for r in rows) / len(rows):.0f}" if rows else "-"


def grouped(rows: Rows, *keys: str) -> dict[Any, Rows]:
    found = collections.defaultdict(list)
    for r in rows:
        found[tuple(r[k] for k in keys)].append(r)
    return found


def header(title: str) -> None:
    print(f"\n{title}")


def by_bit(rows: Rows) -> None:
    """Cells: ours / the best other tool that is not among those that alarm without a fault."""
    flips = [r for r in rows if r["field"]]
    cells = grouped(flips, "site", "dtype", "field")
    columns = [(d, f) for d in FIELDS for f in FIELDS[d]]
    header("% of single flips seen, ours / v3+sum, by site and field of bits: float32, then bfloat16")
    print(f"{'site':11}" + "".join(f"{f:>9}" for _, f in columns))
    for site in dict.fromkeys(r["site"] for r in flips):
        row = [f"{percent(c, 'ours')}/{percent(c, 'v3+sum')}" if (c := cells.get((site, *k))) else "-" for k in columns]
        print(f"{site:11}" + "".join(f"{cell:>9}" for cell in row))


def by_fault(rows: Rows, names: tuple[str, ...]) -> None:
    header("% seen by fault and site, detectors beside each other")
    print(f"{'fault site':16}{'n':>5}" + "".join(f"{n:>11}" for n in names))
    for (code, site), of in sorted(grouped(rows, "code", "site").items()):
        print(f"{code + ' ' + site:16}{len(of):5}" + "".join(f"{percent(of, n):>11}" for n in names))


def by_site(rows: Rows, names: tuple[str, ...]) -> None:
    header("% seen by site")
    print(f"{'site':16}{'n':>5}" + "".join(f"{n:>11}" for n in names))
    for (site,), of in grouped(rows, "site").items():
        print(f"{site:16}{len(of):5}" + "".join(f"{percent(of, n):>11}" for n in names))


def by_code(rows: Rows, names: tuple[str, ...]) -> None:
    header("% seen by fault")
    codes = sorted(grouped(rows, "code").items(), key=lambda kv: int(kv[0][0][1:]))
    print(f"{'':11}" + "".join(f"{code:>6}" for (code,), _ in codes))
    for name in names:
        print(f"{name:11}" + "".join(f"{percent(of, name):>6}" for _, of in codes))


def weighted(rows: Rows, name: str) -> float:
    total = sum(r["harm"] for r in rows)
    return 100 * sum(r["harm"] for r in rows if hit(r, name)) / total if total else 0.0


def _middle(values: list[int]) -> str:
    if not values:
        return "-"
    return f"{statistics.median(values):.0f}, {sorted(values)[int(0.95 * (len(values) - 1))]}"


def attribution(rows: Rows, name: str) -> tuple[str, str]:
    """% of first events that name the tensor's module, and the rank."""
    firsts = [(r, r["seen"][name][0]) for r in rows if r["seen"].get(name) and len(r["seen"][name][0]) > 1]
    if not firsts:
        return "-", "-"
    module = {
        id(r): r["name"].rpartition(".")[0] if r["name"].endswith((".weight", ".bias")) else r["name"]
        for r, _ in firsts
    }
    tensor = sum(first[2].startswith(module[id(r)]) for r, first in firsts)
    rank = sum(any(e[3] == r["rank"] for e in r["seen"][name]) for r, _ in firsts)
    return f"{100 * tensor / len(firsts):.0f}", f"{100 * rank / len(firsts):.0f}"


def summary(rows: Rows, clean: Rows, names: tuple[str, ...]) -> None:
    header(
        "all faults: % seen; of those that change the loss by more than another order of sums does; weighted by harm\n"
        "(share of the loss, at most 1); steps until it is seen; % of first events that name tensor and rank; alarms\n"
        "on clean runs that are hard, 95 % bound in 10^6 steps"
    )
    print(
        f"{'':11}{'seen':>6}{'felt':>6}{'harm':>6}{'median, p95':>13}{'tensor':>8}{'rank':>6}"
        f"{'alarms':>8}{'steps':>8}{'bound':>10}"
    )
    felt = [r for r in rows if r["outside"]]
    steps = sum(r["steps"] for r in clean)
    for name in names:
        late = [r["seen"][name][0][0] - r["planted"] for r in rows if hit(r, name)]
        tensor, rank = attribution(rows, name)
        alarms = sum(r["alarms"].get(name, 0) for r in clean)
        print(
            f"{name:11}{percent(rows, name):>6}{percent(felt, name):>6}{weighted(rows, name):6.0f}{_middle(late):>13}"
            f"{tensor:>8}{rank:>6}{alarms:8}{steps:8}{rate_bound(alarms, steps):10.0f}"
        )
    print(
        f"{len(rows)} trials, {len(felt)} of them felt, {sum(r['harm'] > 0.01 for r in rows)} cost more than 1 % "
        "of the loss"
    )


def hard_runs(clean: Rows) -> None:
    names = [n for n in NAMES if any(n in r["alarms"] for r in clean)]
    header("steps with an alarm on clean runs")
    print(f"{'run':16}{'steps':>7}" + "".join(f"{n:>11}" for n in names))
    for (run,), of in grouped(clean, "run").items():
        print(
            f"{run:16}{sum(r['steps'] for r in of):7}"
            + "".join(f"{sum(r['alarms'].get(n, 0) for r in of):11}" for n in names)
        )
    for r in clean:
        if r.get("said"):
            print(
                f"  {r['run']}, {r['work']} {r['dtype']}: {r['said'][0]}"
                + (f" (+{len(r['said']) - 1})" if len(r["said"]) > 1 else "")
            )


def curve(rows: Rows, clean: Rows) -> None:
    header("threshold times a factor: % seen, and alarms in 10^6 steps of hard clean runs")
    print(f"{'':11}" + "".join(f"{'x ' + str(f):>16}" for f in FACTORS))
    scored = [r for r in clean if "scores" in r]
    for name in ("ours", "v3", "v2", "megatron", "turbulence", "zscore"):
        cells = []
        for factor in FACTORS:
            seen = sum(r["scores"].get(name, 0) > factor for r in rows) / max(1, len(rows))
            scores = [x for r in scored for x in r["scores"].get(name, ())]
            false = sum(x > factor for x in scores) / max(1, len(scores))
            cells.append(f"{100 * seen:.0f} %, {1e6 * false:.0f}")
        print(f"{name:11}" + "".join(f"{c:>16}" for c in cells))


def unseen(rows: Rows, most: int = 8) -> None:
    """What ours has not seen although it cost more than 1 % of the loss."""
    header("not seen although the loss moved by more than 1 %, by site: number, share of the site's harm")
    for (site,), of in sorted(
        grouped(rows, "site").items(), key=lambda kv: -sum(r["harm"] for r in kv[1] if not hit(r, "ours"))
    ):
        missed = [r for r in of if r["harm"] > 0.01 and not hit(r, "ours")]
        if missed and (most := most - 1) >= 0:
            codes = collections.Counter(r["code"] for r in missed).most_common(4)
            print(
                f"  {site:11}{len(missed):4} of {sum(r['harm'] > 0.01 for r in of):4}, "
                f"{100 - weighted(of, 'ours'):3.0f} %  " + ", ".join(f"{n} {c}" for c, n in codes)
            )


def bugs(rows: Rows, no_numbers: dict[str, str]) -> None:
    header("public TrainCheck cases: events with the mistake, and without")
    for r in rows:
        said = f"{r['detector']}, step {r['step']}: {r['said'][:90]}" if r["seen"] else "not seen"
        print(f"  {r['id']:26}{r['clean']:3} clean  {said}")
    print("  of no numbers that a watch reads: " + "; ".join(f"{k} ({why})" for k, why in no_numbers.items()))


def show(rows: Rows) -> None:
    """All tables that the rows fill."""
    from .traincheck import NO_NUMBERS

    trials = [r for r in rows if "code" in r]
    planted = [r for r in trials if r["planted"] is not None]
    if len(trials) > len(planted):
        print(f"{len(trials) - len(planted)} of {len(trials)} faults changed no bit and are left out")
    clean = [r for r in rows if "alarms" in r]
    for (kind, world), of in grouped(planted, "kind", "world").items():
        mine = [r for r in clean if (r.get("kind", ""), r.get("world", 1)) == (kind, world)]
        print(f"\n==== {kind or 'one process'}" + (f", {world} processes" if kind else ""))
        names = tuple(n for n in NAMES if any(n in r["seen"] for r in of) and (kind or n != "replicas"))
        few = tuple(n for n in names if n in ("ours", "neighbour", "audit", "replicas", "v3", "v3+sum", "nan"))
        by_bit(of)
        by_fault(of, names)
        by_site(of, few)
        by_code(of, few)
        summary(of, mine, few if kind else names)
        if not kind:
            curve(of, mine)
        unseen(of)
    if clean:
        hard_runs(clean)
    if any("id" in r for r in rows):
        bugs([r for r in rows if "id" in r], NO_NUMBERS)
