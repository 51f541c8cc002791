# SPDX-License-Identifier: Apache-2.0
"""`ulpscope fuzz --stress` searches: from a case in steps towards the largest error, and the name of what it
reached is that call without the search. A captured trace's calls come first as they are."""

import json
import subprocess

import pytest
import torch
from traces import TraceWriter

from ulpscope import _core
from ulpscope.calls.replay import BadCall
from ulpscope.calls.verdicts import FLAGGED
from ulpscope.executors.device import PythonDevice
from ulpscope.fuzzer.climbing import climb, form, score
from ulpscope.session.judging import judge_call
from ulpscope.fuzzer import drawn_cases, spec

SOFTMAX = "aten::_softmax", (torch.randn(4, 6), -1, False)


def example(path, op, args):
    with TraceWriter(path) as t:
        t.add(op, *args)
    return drawn_cases.Example(_core.Trace(str(path)).call(1), "id")


class Count:
    """Judges calls on a device and counts them."""

    def __init__(self, source, kernel):
        self.source, self.device, self.n = source, PythonDevice(kernel), 0

    def draw(self, number):
        return drawn_cases.drawn(self.source, 3, number, True)

    def judge(self, call):
        self.n += 1
        return judge_call(call, self.device, seconds=0)

    def climbed(self, case):
        """(call, verdict, words, number) of a search from a case; None where none is drawn."""
        try:
            call, words = self.draw(case)
        except BadCall:
            return None
        return climb(self.draw, case, (call, self.judge(call), words), self.judge)


def no_maximum(op, args, kwargs):
    """Softmax without taking the largest away, in steps whose errors add up with the row."""
    x = args[0].exp()
    total = torch.zeros(x.shape[:-1], dtype=x.dtype)
    for k in range(x.shape[-1]):
        total = total + x[..., k]
    return x / total.unsqueeze(-1)


def test_a_search_climbs_and_its_name_is_what_it_reached(tmp_path):
    count = Count(example(tmp_path / "t", *SOFTMAX), no_maximum)
    rose = 0
    for case in range(12):
        found = count.climbed(case)
        if found is None:
            continue
        call, verdict, words, number = found
        again, same = count.draw(number)
        assert form(again) == form(call) and same == words
        assert judge_call(again, count.device, seconds=0).verdict == verdict.verdict
        start = judge_call(count.draw(case)[0], count.device, seconds=0)
        assert score(verdict) >= score(start)
        assert number & ((1 << drawn_cases.STEP_BIT) - 1) == case
        rose += score(verdict) > score(start)
    assert rose > 5


def test_an_honest_kernel_stays_honest(tmp_path):
    count = Count(
        example(tmp_path / "t", "aten::mm", (torch.randn(4, 6), torch.randn(6, 5))), lambda op, args, kwargs: op(*args)
    )
    for case in range(10):
        found = count.climbed(case)
        # The CPU's products of 16 bits, added in 16 bits, are no planted fault.
        assert found is None or found[1].verdict not in FLAGGED or "16" in str(found[0].views["args[0]"].dtype)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("search") / "trace"
    with TraceWriter(path) as t:
        t.add("aten::mm", torch.randn(3, 11), torch.randn(11, 5))
        t.add("aten::exp", torch.randn(7, 13))
    return path


def run(*words, code=0, folder=None):
    done = subprocess.run(
        ["ulpscope", "fuzz", "--device", "sim:0", "-j", "1", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=folder,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def test_calls_of_a_trace_come_first(trace, tmp_path):
    run("--trace", trace, "--stress", "--cases", 4, "-o", tmp_path / "out")
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    first = {r["call"]: r for r in result["calls"]}
    assert {drawn_cases.AS_IS, drawn_cases.AS_IS + 1, 0, 1} == set(first)
    assert {first[drawn_cases.AS_IS + i]["op"] for i in range(2)} == {"aten::mm", "aten::exp"}


def test_what_a_search_finds_is_replayed_by_its_name(trace, tmp_path):
    planted = "--faults", "exp:bf16_inputs", "--trace", trace, "--stress"
    done = run(*planted, "--cases", 6, "--json", "-o", "out", code=1, folder=tmp_path)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found and all(f["op"] == "aten::exp" for f in found)
    again = run("replay", found[0]["case"], *planted, "--json", code=1, folder=tmp_path)
    assert json.loads(again.stdout.splitlines()[0])["sentence"] == found[0]["sentence"]


# ---- specifications --------------------------------------------------------------------

REFUSED = {
    '{"op": "aten::mm", "args": [{"shape": [4, 6]}, {"shape": [7, 5]}]}': "line 1: the CPU takes no such call of "
    "aten::mm: mat1",
    "nonsense": "line 1 is no JSON",
    '{"op": "aten::nope"}': "torch has no operator aten::nope",
    '{"op": "aten::mm", "args": [{"shape": 4}]}': "shape is a list of sizes",
    '{"op": "aten::exp", "args": [{"shape": [4], "range": [2, 1]}]}': "range is [lowest, highest]",
    '{"op": "aten::exp", "args": [{"shape": [4], "dtype": "float33"}]}': "torch has no dtype 'float33'",
    '{"op": "aten::exp", "shapes": []}': "with op, args and kwargs alone",
    '{"op": "aten::_pack_padded_sequence"}': "takes none that was tried: give args for it",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_nothing_satisfies_is_one_sentence(line):
    with pytest.raises(spec.BadSpec) as problem:
        spec.calls(line, "line 1")
    assert REFUSED[line] in str(problem.value) and "\n" not in str(problem.value)


def test_a_schema_is_probed_for_shapes_and_ranges():
    for op, low, ranks in (
        ("aten::acosh", 1.5, {0, 1, 2, 3, 4}),
        ("aten::logit", 0.1, {0, 1, 2, 3, 4}),
        ("aten::bmm", -1, {3}),
    ):
        found = spec.calls(json.dumps({"op": op}), "line 1")
        assert {args[0].dim() for _, args, _ in found} == ranks
        assert min(float(args[0].min()) for _, args, _ in found) == pytest.approx(low)


def test_the_command_draws_from_a_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "library = torch.library.Library('fuzz_spec', 'DEF')\n"
        "library.define('twice(Tensor x, int n) -> Tensor')\n"
        "library.impl('twice', lambda x, n: x * 2 * n, 'CompositeExplicitAutograd')\n"
    )
    (tmp_path / "spec.jsonl").write_text(
        '# mine\n{"op": "fuzz_spec::twice"}\n'
        '{"op": "aten::mm", "args": [{"shape": [4, 6]}, {"shape": [6, 5], "range": [0, 1]}]}\n'
    )
    words = "--spec", "spec.jsonl", "--import", "mine.py"
    done = run(*words, "--faults", "mm:scale", "--cases", 8, "--json", "-o", "out", code=1, folder=tmp_path)
    repro = json.loads(done.stdout.splitlines()[0])["repro"]
    assert repro.endswith("--device sim:0 --faults mm:scale --spec spec.jsonl --import mine.py")
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {r["op"] for r in result["calls"]} == {"fuzz_spec::twice", "aten::mm"}
    (tmp_path / "bad.jsonl").write_text('{"op": "aten::nope"}\n')
    done = run("--spec", "bad.jsonl", code=2, folder=tmp_path)
    assert "ulpscope fuzz: bad.jsonl, line 1: torch has no operator aten::nope" in done.stderr
    done = run("--spec", "none.jsonl", code=2, folder=tmp_path)
    assert done.stderr == "ulpscope fuzz: none.jsonl: No such file or directory\n"
    done = run("--spec", "bad.jsonl", "--trace", "t", code=2, folder=tmp_path)
    assert "give one of them" in done.stderr
