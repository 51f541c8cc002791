# SPDX-License-Identifier: Apache-2.0
"""`ulpscope bisect`: the search over programs in sh that behave as if operators were moved (so
that what they do is known), and once on the demo's transformer with two planted faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import schemas

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))

# Prints 10 losses, each off by what the guilty operators that were not moved add. N operators
# op00, op01, ...; `guilty`: "op03 op17"; a set that has `kills` ends by a signal.
FAKE = """
echo run >> "$LOG"
R=$ULPSCOPE_REROUTE
case $R in *'"*"'*)
  all=1; i=0
  while [ $i -lt $N ]; do printf 'aten::op%02d %d\\n' $i $((i + 1)); i=$((i + 1)); done > "$ULPSCOPE_BISECT/operators"
esac
has() { [ -n "$all" ] || case $R in *$1*) true;; *) false;; esac; }
if [ -z "$all" ] && [ -n "$KILLS" ] && has "$KILLS"; then kill -9 $$; fi
if [ -n "$FAILS" ] && [ -z "$all" ] && has "$FAILS"; then
  echo "fallback failed: planted" > "$ULPSCOPE_BISECT/failed"
fi
if [ -n "$SLOW" ] && [ -z "$all" ] && has "$SLOW"; then sleep 100; fi
off=0
for g in $GUILTY; do has $g || off=$((off + 1)); done
awk -v off=$off 'BEGIN { for (i = 0; i < 10; i++) printf "step %d loss %.6f\\n", i, 2 - i / 10 + off * 0.01 }'
"""


def bisect(folder, *words, command=("sh", "fake.sh"), start=False, **environment):
    (folder / "fake.sh").write_text(FAKE)
    env = {
        **os.environ,
        "ULPSCOPE_PYTHON": sys.executable,
        "LOG": str(folder / "log"),
        "N": "40",
        "GUILTY": "op03 op17",
        "KILLS": "",
        "SLOW": "",
        "FAILS": "",
        **environment,
    }
    argv = [BUILD / "bin" / "ulpscope", "bisect", *map(str, words), "--", *command]
    pipes = {"cwd": folder, "env": env, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    if start:
        return subprocess.Popen(argv, **pipes)
    return subprocess.run(argv, timeout=1800, **pipes)


def n_runs(folder):
    return len((folder / "log").read_text().split())


def guilty(done):
    assert done.returncode == 1, done
    return {row["op"] for row in schemas.one("bisect", done.stdout)["guilty"]}


FEWEST = [(1, "op03 op17"), (1, "op00"), (3, "op39"), (1, "op00 op01 op39"), (3, "op05 op06 op07 op08")]


@pytest.mark.parametrize(("jobs", "names"), FEWEST)
def test_the_fewest_operators_are_named(tmp_path, jobs, names):
    done = bisect(tmp_path, "--json", "-j", jobs, GUILTY=names)
    assert guilty(done) == {f"aten::{n}" for n in names.split()}
    found = json.loads(done.stdout)
    n = len(names.split())
    assert found["operators"] == 40 and found["trials"] <= 4 + n * (9 if jobs == 1 else 14)
    assert all(row["without"] == pytest.approx(0.01) for row in found["guilty"])


def test_sentences_and_a_second_run_that_needs_no_trial(tmp_path):
    first = bisect(tmp_path)
    n = n_runs(tmp_path)
    assert "aten::op03 makes the loss differ: on the CPU it comes right; left as it is, it stays" in first.stdout
    assert "(18 calls)" in first.stdout and "loss 1.29 % off, not right" in first.stderr
    again = bisect(tmp_path)
    assert again.stdout == first.stdout and n_runs(tmp_path) == n and "(earlier)" in again.stderr
    other = bisect(tmp_path, "--to", "float32")
    assert other.returncode == 2 and "trials of another search" in other.stderr
    assert bisect(tmp_path, "--to", "float32", "--force").returncode == 1
    assert '"do": "cast"' in "".join(p.read_text() for p in tmp_path.glob("ulpscope-bisect/*/reroute"))


def test_it_goes_on_where_it_was_killed(tmp_path):
    whole = bisect(tmp_path, "--json", "-o", "whole")
    n = n_runs(tmp_path)
    (tmp_path / "log").unlink()
    running = bisect(tmp_path, "--json", "-o", "cut", start=True)
    while running.poll() is None and (not (tmp_path / "log").exists() or n_runs(tmp_path) < n // 2):
        time.sleep(0.01)
    running.kill()
    running.communicate()
    ended = bisect(tmp_path, "--json", "-o", "cut")
    assert guilty(ended) == guilty(whole)
    assert n_runs(tmp_path) <= n + 1  # the trial that was cut ran twice


def test_interrupted(tmp_path):
    running = bisect(tmp_path, SLOW="op03", start=True)
    while not (tmp_path / "log").exists() or n_runs(tmp_path) < 3:
        assert running.poll() is None
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=300)
    assert running.returncode == 130 and "the same command goes on" in said


def test_nothing_to_find(tmp_path):
    done = bisect(tmp_path, GUILTY="")
    assert done.returncode == 0 and "no difference to look for" in done.stdout


def test_what_cannot_be_found_is_said(tmp_path):
    (tmp_path / "far.csv").write_text("step,loss\n" + "".join(f"{i},{3 - i / 10}\n" for i in range(10)))
    done = bisect(tmp_path, "--reference", "far.csv")
    assert done.returncode == 2 and "the loss does not come right" in done.stderr


def test_a_reference_from_elsewhere(tmp_path):
    text = "step,loss\n" + "".join(f"{i},{2 - i / 10:.6f}\n" for i in range(10))
    (tmp_path / "ref.csv").write_text(text)
    found = {"aten::op03", "aten::op17"}
    assert guilty(bisect(tmp_path, "--json", "--reference", "ref.csv", "-o", "a")) == found
    assert guilty(bisect(tmp_path, "--json", "--good", "cat ref.csv", "-o", "b")) == found
    assert guilty(bisect(tmp_path, "--json", "--loss", r"loss (?P<loss>\S+)", "-o", "c")) == found
    (tmp_path / "quiet.csv").write_text(text.replace("1.500000", "1.500001"))
    (tmp_path / "loud.csv").write_text(text.replace("1.500000", "1.510000"))
    assert guilty(bisect(tmp_path, "--json", "--noise", "quiet.csv", "-o", "d")) == found
    assert bisect(tmp_path, "--noise", "loud.csv", "-o", "e").returncode == 0


def test_a_curve_in_a_file_of_the_trial(tmp_path):
    done = bisect(
        tmp_path, "--json", "--curve", "curve.log", command=("sh", "-c", "sh fake.sh > $0", "{trial}/curve.log")
    )
    assert guilty(done) == {"aten::op03", "aten::op17"}


def test_substitutes_take_the_place_of_moving(tmp_path):
    done = bisect(tmp_path, "--substitute", "aten::op17=ref:f")
    assert "aten::op17 makes the loss differ: computed by ref:f it comes right" in done.stdout
    assert "  aten::op17 computed by ref:f: loss" in done.stderr and "these on the CPU or substituted" in done.stdout
    text = "".join(p.read_text() for p in tmp_path.glob("ulpscope-bisect/*/reroute"))
    assert '{"do": "substitute", "ops": "aten::op17", "with": "ref:f"}' in text


def test_a_trial_that_dies_or_hangs_is_said_and_is_not_right(tmp_path):
    done = bisect(tmp_path, "--json", KILLS="op00")
    assert "ended by signal 9" in done.stderr and "failed and count as not right" in done.stderr
    assert guilty(done) >= {"aten::op03", "aten::op17"} or done.returncode == 2
    late = bisect(tmp_path, "--json", "--time-limit", "6", "-o", "late", SLOW="op01", GUILTY="op03", N="4")
    assert "not done in 6 s" in late.stderr and guilty(late) == {"aten::op03"}


def test_a_trial_that_could_not_move_its_operators_tells_nothing_of_them(tmp_path):
    """It prints the losses of a run in which they were moved; the file that the mode left says that they were not."""
    done = bisect(tmp_path, "--json", FAILS="op01", GUILTY="op01", N="3")
    assert "could not move its operators: fallback failed: planted" in done.stderr
    assert done.returncode == 2 or guilty(done) != {"aten::op01"}, done


def test_names_with_quotes_are_handed_on_as_they_are(tmp_path):
    bisect(tmp_path, "--json", "--substitute", 'aten::op17=ref:a"b\\c')
    rows = [row for p in tmp_path.glob("ulpscope-bisect/*/reroute") for row in json.loads(p.read_text())]
    assert {row.get("with") for row in rows} == {None, 'ref:a"b\\c'}


def test_trouble_is_a_sentence(tmp_path):
    for words, command, said in [
        ((), ("no-such-command",), "command not found"),
        ((), ("false",), "without it nothing can be told"),
        ((), ("true",), "without it nothing can be told"),
        (("--reference", "none"), ("true",), "none: No such file"),
        (("--substitute", "x"), ("true",), "OP=MODULE:FUNCTION"),
        (("--within", "7"), ("true",), "between 0 and 1"),
        ((), ("echo", "loss 1"), "no operator that could be moved"),
        (("--to", "float32"), ("echo", "loss 1"), "in that dtype already, try --to float64"),
    ]:
        done = bisect(tmp_path, *words, "--force", command=command)
        assert done.returncode == 2 and said in done.stderr, (words, command, done)


def test_a_small_difference_behind_a_large_one_is_found(tmp_path):
    """Op03 is off by 0.01, op17 by 0.0002: moving op03 alone leaves 2 % of the difference."""
    command = (
        "sh",
        "-c",
        "sh fake.sh | awk '{ $4 = $4 + 0; o = (2 - $2 / 10); n = int(($4 - o) / 0.01 + 0.5); "
        'h = ENVIRON["ULPSCOPE_REROUTE"]; $4 = o + (h ~ /op03/ || h ~ /\\*/ ? 0 : 0.01) + '
        '(h ~ /op17/ || h ~ /\\*/ ? 0 : 0.0002); printf "step %d loss %.6f\\n", $2, $4 }\'',
    )
    done = bisect(tmp_path, "--json", command=command)
    assert guilty(done) == {"aten::op03", "aten::op17"}
    assert json.loads(done.stdout)["after"] < 1e-6


def test_two_faults_of_the_demo_are_named(tmp_path):
    """The demo's transformer on the simulated device, with the two bugs that once took weeks."""
    pytest.importorskip("ulpscope.program.reroute")
    faults = "aten::_fused_adamw_:step_plus_one;demo::rms_norm:bf16_intermediates"
    words = [
        "--json",
        "--curve",
        "losses.json",
        "--seed",
        "0",
        "-j",
        "2",
        "--ops",
        "aten::_fused_adamw_,demo::rms_norm,aten::mm",
    ]
    train = [sys.executable, str(ROOT / "examples" / "demo" / "train.py"), "--device", "sim", "--steps", "6"]
    done = bisect(tmp_path, *words, command=[*train, "--losses", "{trial}/losses.json"], ULPSCOPE_SIM_FAULTS=faults)
    assert guilty(done) == {"aten::_fused_adamw_", "demo::rms_norm"}
    assert json.loads(done.stdout)["after"] == 0
