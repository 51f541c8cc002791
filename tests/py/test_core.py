# SPDX-License-Identifier: Apache-2.0
"""The extension: exceptions made from the one list, results written, resumed and refused,
traces refused with a sentence. (Traces are written in C: tests/py/test_trace_format.py
reads one without the extension and with it.)"""

import ast
import math
import re
import sqlite3
from collections.abc import Iterable
from pathlib import Path

import pytest

from ulpscope import _core

RUN = {
    "trace": "/t",
    "trace_id": "ab",
    "device": "sim:0",
    "standard": "ulpscope",
    "faults": "",
    "options": "{}",
    "environment": "{}",
}
HEADER = Path(__file__).parents[2] / "include/ulpscope/status.h"


def row(call, **changes):
    made = dict(
        call=call,
        op="aten::mm",
        verdict="pass",
        bits=24.0,
        yardstick_bits=24.0,
        metrics=[(0, "max", 1.5, None), (0, "sizes", 0.0, "[2]")],
        examples=[(0, 0, "[1]", float("nan"), 2.0, 3.0, float("inf"))],
    )
    return {**made, **changes}


def test_each_status_has_its_exception():
    names = re.findall(r"X\(E_(\w+),", HEADER.read_text())
    assert len(names) > 10
    for name in names:
        spelled = "".join(part.capitalize() for part in name.split("_")) + "Error"
        assert issubclass(getattr(_core, spelled), _core.UlpscopeError)


def test_stub_names_each_exception():
    stub = (HEADER.parents[2] / "python/ulpscope/_core.pyi").read_text()
    for name in dir(_core):
        if name.endswith("Error"):
            assert f"class {name}(" in stub


def test_stub_names_all_that_the_module_has():
    stub = ast.parse((HEADER.parents[2] / "python/ulpscope/_core.pyi").read_text())

    def names(of):
        lists = [node.targets if isinstance(node, ast.Assign) else [node] for node in of.body]
        return {getattr(n, "name", None) or getattr(getattr(n, "target", n), "id", "") for part in lists for n in part}

    def lacking(has, of):
        return {n for n in vars(has) if not n.startswith("_") and n not in names(of)}

    classes = {node.name: node for node in stub.body if isinstance(node, ast.ClassDef)}
    assert not lacking(_core, stub)
    for name, of in classes.items():
        if not issubclass(getattr(_core, name), tuple):  # has those of every named tuple
            assert not lacking(getattr(_core, name), of), name


def test_findings_are_gone_through():
    one, two = (_core.Finding(path, "pass") for path in ("out[0]", "out[1]"))
    assert [f.path for f in iter(_core.Findings([one, two]))] == ["out[0]", "out[1]"]
    assert isinstance(_core.Findings(), Iterable)


def test_missing_trace_is_one_sentence(tmp_path):
    with pytest.raises(_core.NotFoundError, match="no such folder") as caught:
        _core.Trace(tmp_path / "none")
    assert caught.value.status == "E_NOT_FOUND"
    assert caught.value.where == -1
    with pytest.raises(_core.NotFoundError, match="no trace.db"):
        _core.Trace(str(tmp_path))


def test_result_resumes_the_same_run_until_it_is_done(tmp_path):
    with _core.Result(tmp_path / "out", RUN) as result:
        result.put(row(3))
        result.put(row(1))
        result.set("state", "budget")
    with _core.Result(tmp_path / "out", {**RUN, "environment": "{1}"}) as result:
        assert result.done() == [1, 3]
        assert result.get("state") == "budget"
        assert result.get("nothing") is None
        result.set("state", "done")
    with _core.Result(tmp_path / "out", RUN) as result:
        assert result.done() == [] and result.get("state") is None


def test_a_discarded_result_leaves_nothing(tmp_path):
    _core.Result(tmp_path / "a/b", RUN).discard()
    assert list(tmp_path.iterdir()) == []


def test_result_refuses_another_run_unless_forced(tmp_path):
    _core.Result(tmp_path, RUN).put(row(1))
    with pytest.raises(_core.ExistsError, match="its device is 'sim:0', not 'cuda:0'"):
        _core.Result(tmp_path, {**RUN, "device": "cuda:0"})
    with _core.Result(tmp_path, {**RUN, "device": "cuda:0"}, force=True) as result:
        assert result.done() == []


def test_result_rows_read_with_sqlite(tmp_path):
    with _core.Result(tmp_path, RUN) as result:
        result.put(row(1, verdict="wrong"))
        result.put(row(1))
    base = sqlite3.connect(tmp_path / "result.db")
    assert base.execute("SELECT call, verdict FROM verdict").fetchall() == [(1, "pass")]
    assert base.execute("SELECT name, value, text FROM metric").fetchall() == [
        ("max", 1.5, None),
        ("sizes", 0.0, "[2]"),
    ]
    (example,) = base.execute("SELECT position, device, score FROM example").fetchall()
    assert example == ("[1]", None, float("inf"))
    assert [p.name for p in tmp_path.iterdir()] == ["result.db"]


@pytest.mark.parametrize(
    "bad", [{"verdict": "fine"}, {"metrics": [3]}, {"call": "x"}, {"examples": [(1, 2)]}, {"op": 3}]
)
def test_result_refuses_bad_rows(tmp_path, bad):
    with _core.Result(tmp_path, RUN) as result:
        with pytest.raises((_core.ArgError, TypeError)):
            result.put(row(1, **bad))
        result.put(row(2))
        assert result.done() == [2]


def test_closed_handles_say_so(tmp_path):
    result = _core.Result(tmp_path, RUN)
    result.close()
    result.close()
    with pytest.raises(ValueError, match="closed"):
        result.done()


@pytest.mark.parametrize(
    ("pattern", "op", "found"),
    [
        ("aten::add,aten::mm", "aten::add.Tensor", True),
        ("aten::add", "aten::addmm", False),
        ("aten::add.Tensor", "aten::add.Scalar", False),
        ("*,!mm", "aten::mm", False),
    ],
)
def test_operators_match_a_pattern_as_everywhere(pattern, op, found):
    assert _core.match_pattern(pattern, op) is found


# ---- arguments -------------------------------------------------------------------------

VALUES = {
    "null": None,
    "true": True,
    "3": 3,
    "2.0": 2.0,
    '"a"': "a",
    '{"tensor": false}': None,
    '{"float": "-inf"}': -math.inf,
    '{"complex": [1, "inf"]}': complex(1, math.inf),
    "[1, [2]]": [1, [2]],
    '{"tuple": [1, []]}': (1, []),
    '{"slice": [null, 2, 1]}': slice(None, 2, 1),
    '{"ellipsis": true}': ...,
    '{"dict": {"a": {"tuple": []}}}': {"a": ()},
    '{"tensor": true}': ("tensor", "", "args[0]"),
    '[{"tensor": true}]': [("tensor", "", "args[0][0]")],
    '{"dtype": "int8"}': ("dtype", "int8", ""),
    '{"generator": true}': ("generator", "", ""),
    '{"other": "X"}': ("other", "X", "args[0]"),
    '{"dtype": 7}': ("other", '{"dtype":7}', "args[0]"),
    '{"slice": [null, {"tensor": true}, 1]}': ("other", "slice", "args[0][1]"),
    '{"a": 1, "b": 2}': ("other", '{"a":1,"b":2}', "args[0]"),
}


@pytest.mark.parametrize("text", VALUES)
def test_arguments_are_what_python_has(text):
    args, kwargs = _core.arguments(f'{{"args": [{text}], "kwargs": {{"x": {text}}}}}', lambda *value: value)
    assert args == [VALUES[text]] and type(args[0]) is type(VALUES[text])
    assert str(kwargs) == str({"x": VALUES[text]}).replace("args[0]", "kwargs.x")


def test_what_only_torch_has_is_a_value_where_nobody_makes_it():
    (value,), _ = _core.arguments('{"args": [{"device": "sim:1"}]}')
    assert isinstance(value, _core.Value) and (value.kind, value.text) == ("device", "sim:1")
    assert _core.arguments(None) == _core.arguments("") == ([], {})


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"args": 1}',
        '{"kwargs": []}',
        '{"args": [1e999]}',
        '{"args": [NaN]}',
        '{"args": [' + "[" * 5000 + "]" * 5000 + "]}",
        '{"args": ["\\ud800"]}',
    ],
)
def test_arguments_that_are_none_are_corrupt(text):
    with pytest.raises(_core.CorruptError, match="not as a trace has them"):
        _core.arguments(text)


def test_what_is_raised_about_a_value_is_raised():
    def refuse(kind, text, path):
        raise KeyError(path)

    with pytest.raises(KeyError, match="kwargs.x"):
        _core.arguments('{"args": [1, [2]], "kwargs": {"x": {"tensor": true}}}', refuse)


def test_a_pack_has_tensors_by_their_places():
    text = '{"args": [[{"tensor": true}, 2.0]], "kwargs": {"out": {"tensor": true}, "at": {"tuple": [1]}}}'
    placed = text.replace("true", '"args[0][0]"', 1).replace("true", '"kwargs.out"')
    assert _core.placed_arguments(text) == placed
