# SPDX-License-Identifier: Apache-2.0
"""`--via jax` and `--via onnxruntime`: each word of short programs gives there what torch gives, what is wrong there is found,
and where they are not installed a sentence says what to install. Without the packages only that is tested."""

import json
import subprocess

import pytest
import torch

from ulpscope.executors import peers
from ulpscope.executors.device import UnknownDevice, open_device
from ulpscope.fuzzer import words
from ulpscope.fuzzer.short_programs import made

HAVE = {name: not peers.missing(name) for name in peers.NEEDS}
needs_jax = pytest.mark.skipif(not HAVE["jax"], reason="jax is not installed")
needs_onnxruntime = pytest.mark.skipif(not HAVE["onnxruntime"], reason="onnxruntime is not installed")


@pytest.mark.parametrize("name", peers.NEEDS)
def test_what_is_not_installed_is_one_sentence(name, monkeypatch):
    monkeypatch.setitem(peers.NEEDS, name, ("no_such_module",))
    with pytest.raises(
        UnknownDevice, match=f"--via {name} needs a package that is not installed: pip install no_such_module"
    ):
        open_device("cpu", via=name)
    monkeypatch.setitem(peers.NEEDS, name, ())
    with pytest.raises(UnknownDevice, match=f"--via {name} runs on the CPU: use --device cpu, not sim:0"):
        open_device("sim:0", via=name)


def module_of(text):
    function = made(f"def program(a, b, c):\n    return {text}\n", f"<word {text}>")

    class Word(torch.nn.Module):
        def forward(self, a, b, c):
            return (function(a, b, c),)

    return Word(), function


def same(name, word):
    """Whether a word gives there what it gives here; None where that framework has none of it."""
    text, names = words.sampled(word)
    module, function = module_of(text)
    args = tuple(names[n] for n in "abc")
    try:
        (got,) = peers.MAKERS[name](module, args)(*args)
    except NotImplementedError:
        return None
    want = function(*args)
    return (
        got.dtype == want.dtype
        and got.shape == want.shape
        and torch.allclose(got.double(), want.double(), 1e-3, 1e-3, True)
    )


@needs_jax
def test_words_are_the_same_functions_in_jax():
    """Every fifth here; all of them take half a minute."""
    assert [words.WORDS[i][1] for i in range(0, len(words.WORDS), 5) if not same("jax", i)] == []


@needs_onnxruntime
def test_some_words_are_the_same_function_in_onnxruntime():
    said = {words.WORDS[i][1]: same("onnxruntime", i) for i in range(0, len(words.WORDS), 30)}
    assert sum(v is True for v in said.values()) > 3 and False not in said.values(), said


@needs_jax
def test_what_jax_does_not_have_is_said():
    module, _ = module_of("torch.linalg.svdvals(a) + b + c")
    args = torch.rand(3, 3), torch.rand(3), torch.rand(3)
    with pytest.raises(NotImplementedError, match="no function of JAX is known for aten"):
        peers.of_jax(module, args)


@needs_jax
def test_a_wrong_framework_is_found(tmp_path):
    """JAX's gammaln near its roots is off by hundreds of ulps (examples/found/jax_gammaln.py); its neg and abs are right."""
    (tmp_path / "spec.jsonl").write_text(
        '{"op": "aten::lgamma", "args": [{"shape": [400], "range": [1.9, 2.1]}]}\n'
        '{"op": "aten::neg", "args": [{"shape": [400]}]}\n'
    )
    done = subprocess.run(
        [
            "ulpscope",
            "fuzz",
            "--device",
            "cpu",
            "--via",
            "jax",
            "--spec",
            "spec.jsonl",
            "--cases",
            "10",
            "-j",
            "1",
            "--causes",
            "off",
            "--json",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert {json.loads(line)["op"] for line in done.stdout.splitlines()} == {"aten::lgamma"}
