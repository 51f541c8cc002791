# SPDX-License-Identifier: Apache-2.0
"""What a prompt and a notebook show of what the Python API returns: one line that says what came of it, and a table
in which names are text."""

import html
import html.parser
import subprocess

import pytest
import torch
from calls import make_call

import ulpscope
import ulpscope.sim
from ulpscope import _core
from ulpscope.calls.shown import MOST_ROWS, Shown
from ulpscope.fuzzing import broadcasting, floats, ints, nothing, shapes

X = torch.randn(8, 8)


def a_capture(folder):
    with ulpscope.capture(folder / "t") as c:
        torch.mm(X, X)
    return c


def a_trace(folder):
    a_capture(folder)
    return _core.Trace(folder / "t")


def a_tracker(folder):
    with ulpscope.nan_tracker() as nan:
        (X * torch.inf) - (X * torch.inf)
    return nan


def a_watch(folder):
    net = torch.nn.Linear(8, 8)
    with ulpscope.watch(net, torch.optim.SGD(net.parameters(), lr=0.1)) as w:
        return w


def within(mode):
    with mode as m:
        torch.rand(3) + 1
    return m


def a_schedule():
    with ulpscope.sim.schedule(3) as order:
        return order


THINGS = {  # what -> (how it is made, what its line says)
    "a verdict": (lambda f: ulpscope.check_call(torch.tanh, (X,)), "<pass: tanh "),
    "an accusation": (lambda f: ulpscope.judge_call(torch.mm, (X, X), {}, (X @ X * 2,), cause=False), "wrong: mm"),
    "an output": (lambda f: ulpscope.check_call(torch.tanh, (X,)).outputs[0], "out[0] pass"),
    "a capture": (a_capture, "capture: 1 call, 512 B -> "),
    "generators": (lambda f: ints(1, 5) + 1 | floats(0, 1) | nothing(), "oneof(add(ints(1, 5), 1), floats("),
    "shapes": (lambda f: [shapes(2), broadcasting(), ints(1, 9).where(lambda n: n % 2)], "shapes(2)"),
    "a schedule": (lambda f: a_schedule(), "schedule: seed 3, delay 0.9"),
    "a trace": (a_trace, "<Trace of ["),
    "a call": (lambda f: make_call("aten::mm", X, X), "aten::mm(float32[8, 8], float32[8, 8])"),
    "a NaN tracker": (a_tracker, "nan_tracker: 1 birth in 3 calls"),
    "times": (lambda f: within(ulpscope.time_ops()), "time_ops: 2 calls in "),
    "a fallback": (lambda f: within(ulpscope.fallback("gelu")), "fallback: 0 calls"),
    "determinism": (lambda f: within(ulpscope.deterministic()), "deterministic: 1 call drew random numbers"),
    "a live check": (lambda f: ulpscope.live_check(output=f / "out"), "live_check: 0 calls judged"),
    "a watch": (a_watch, "watch: 0 events"),
}


@pytest.mark.parametrize("name", THINGS)
def test_a_line_says_what_came_of_it(name, tmp_path):
    make, said = THINGS[name]
    thing = make(tmp_path)
    assert said in repr(thing) and len(repr(thing)) < 500 and " at 0x" not in repr(thing)
    if isinstance(thing, Shown):
        tags = Tags(thing._repr_html_())
        assert tags.opened == [] and set(tags.seen) <= {"p", "b", "table", "thead", "tbody", "tr", "th", "td"}


class Tags(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.opened, self.seen = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.opened.append(tag)
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.opened.pop() == tag


class Evil(Shown):
    def _shown(self):
        return "<script>1</script>"

    def _titles_and_rows(self):
        return ("<b>", "n"), [("<img src=x>", float("nan"))] * (MOST_ROWS + 2)


def test_names_are_text_and_long_tables_are_cut():
    tags, text = Tags(Evil()._repr_html_()), Evil()._repr_html_()
    assert "script" not in tags.seen and "img" not in tags.seen
    assert text.count("<tr>") == MOST_ROWS + 1 and "and 2 more" in text


def program(folder, *words):
    return subprocess.run(["ulpscope", *map(str, words)], cwd=folder, capture_output=True, text=True).stdout


def test_what_a_check_and_a_diff_left_shows_itself(tmp_path):
    for name, faults in (("a", None), ("b", "aten::gelu:bf16_intermediates"), ("c", None)):
        planted = ulpscope.sim.plant(faults) if faults else None
        with ulpscope.capture(tmp_path / name):
            torch.relu(torch.nn.functional.gelu(X.to("sim")))
        if planted:
            planted.remove()
    how = "--device", "sim:0", "-j", "1", "--ops", "gelu,relu"
    program(tmp_path, "check", "a", *how, "-o", "right")
    program(tmp_path, "check", "a", *how, "-o", "faulty", "--faults", "aten::gelu:bf16_intermediates")
    right, faulty = ulpscope.results(tmp_path / "right"), ulpscope.results(tmp_path / "faulty" / "result.json")
    assert right.passed and "on sim:0: 2 pass" in repr(right) and right.findings == []
    assert not faulty.passed and [f["op"] for f in faulty.findings] == ["aten::gelu"]
    accused = faulty.findings[0]
    assert f"1 pass: aten::gelu {accused['verdict']}" in repr(faulty) and accused["sentence"] in text(faulty)
    faulty.told["findings"][0]["allowed"] = True
    assert faulty.findings == [] and faulty.passed
    for name, seen in (("n_unrecorded", 1), ("n_not_judged", 1), ("n_calls", 0)):
        told = {**faulty.told, "summary": {**faulty.told["summary"], name: seen}}
        assert not type(faulty)(told).passed, name
    for a, b in (("a", "b"), ("a", "c")):
        (tmp_path / f"{a}{b}.json").write_text(program(tmp_path, "diff", a, b, "--json", "-j", "1"))
    parts, same = ulpscope.results(tmp_path / "ab.json"), ulpscope.results(tmp_path / "ac.json")
    assert not parts.same and "they part at call " in repr(parts) and parts.first["op"] == "aten::gelu"
    assert parts.first["sentence"] in text(parts)
    assert same.same and same.first is None and "a and c: the same" in repr(same)
    for thing in (right, faulty, parts, same):
        assert Tags(thing._repr_html_()).opened == []


def text(thing):
    return html.unescape(thing._repr_html_())


@pytest.mark.parametrize("content", ["no json", '{"a": 1}', "[]", '{"schema": "ulpscope-result/1"'])
def test_files_of_others_are_no_results(tmp_path, content):
    (tmp_path / "f.json").write_text(content)
    with pytest.raises(ValueError, match="f.json"):
        ulpscope.results(tmp_path / "f.json")
    with pytest.raises(FileNotFoundError, match="ulpscope check -o"):
        ulpscope.results(tmp_path)
