# SPDX-License-Identifier: Apache-2.0
"""What a runtime behind `--via NAME` makes of much: calls drawn at random, a training step, and twenty blocks of
transformers whose weights are drawn by their configuration. Says how many were judged, refused and accused, and by
operator what is accused; what is told of it in examples/found was argued there without the judge.

    ./run via openvino -q                        # installs it
    ./run bench via openvino                     # all: hours
    ./run bench via openvino --cases 60 --blocks 4 --jobs 1

The runtime's own Python is taken, BUILD/via/NAME, where `./run via` made one."""

from __future__ import annotations

import argparse
import collections
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))

# class of a configuration in transformers: what makes it small
BLOCKS = {
    "Bert": {},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "Llama": {"num_key_value_heads": 2},
    "Mistral": {"num_key_value_heads": 2},
    "Qwen2": {"num_key_value_heads": 2},
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "Gemma": {"num_key_value_heads": 2, "head_dim": 8},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "Phi": {},
    "Phi3": {"num_key_value_heads": 2, "pad_token_id": 0},
    "GPTNeoX": {},
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Falcon": {},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "Roberta": {},
    "Electra": {"embedding_size": 32},
    "Albert": {"embedding_size": 32},
    "MPNet": {},
    "StableLm": {"num_key_value_heads": 2},
}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}

CAPTURED = """
import os, sys
sys.path[:0] = [os.path.join({root!r}, "bench")]
import torch
import transformers
torch.manual_seed(7)
for name, more in {blocks!r}.items():
    try:
        config = getattr(transformers, name + "Config")(**({small!r} | more))
        model = transformers.AutoModel.from_config(config).eval()
        with torch.no_grad():
            model(input_ids=torch.randint(1, 64, (2, 12)))
    except Exception as problem:
        print(name, "is left out:", type(problem).__name__, str(problem)[:200], flush=True)
"""
STEP = """
import os, sys
sys.path[:0] = [os.path.join({root!r}, "bench")]
import torch
from model import GPT
torch.manual_seed(7)
model = GPT(width=64, layers=1, heads=4, vocabulary=64, length=16)
optimizer = torch.optim.AdamW(model.parameters())
tokens = torch.randint(0, 64, (2, 17))
model(tokens[:, :-1], tokens[:, 1:]).backward()
optimizer.step()
"""


def captured(folder: Path, text: str, name: str) -> Path:
    """The trace of a script."""
    script = folder / f"{name}.py"
    script.write_text(text)
    subprocess.run(
        ["ulpscope", "capture", "--steps", "0", "-o", folder / name, "--", sys.executable, script], check=True
    )
    return folder / name


def told(what: str, out: Path, seconds: float) -> None:
    """The row of one result, and what is accused there."""
    rows = sqlite3.connect(out / "result.db").execute("SELECT op, verdict, sentence FROM verdict").fetchall()
    counts = collections.Counter(verdict for _, verdict, _ in rows)
    kinds = "pass unsupported unjudged undefined reduced wrong nonfinite intermittent crashed timeout internal".split()
    said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])
    print(f"{what}: {len(rows)} judged in {seconds:.0f} s: {said}", flush=True)
    accused = collections.defaultdict(list)
    for op, verdict, sentence in rows:
        if verdict not in ("pass", "unsupported", "unjudged", "undefined"):
            accused[op, verdict].append(sentence)
    for (op, verdict), sentences in sorted(accused.items(), key=lambda x: -len(x[1])):
        print(f"  {len(sentences):4} {verdict} {op}: {sentences[0][:160]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench via", description=__doc__.split("\n\n")[0])
    parser.add_argument("name", help="as behind --via: openvino, openvino:f32, iree, ...")
    parser.add_argument("--cases", type=int, default=900, help="drawn calls (default 900)")
    parser.add_argument("--blocks", type=int, default=len(BLOCKS), help="of transformers (default all)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", "-j", default="2")
    options = parser.parse_args()
    own = BUILD / "via" / options.name.partition(":")[0] / "bin" / "python"
    if own.exists():
        os.environ["ULPSCOPE_PYTHON"] = str(own)
    how = ["--device", "cpu", "--via", options.name, "--causes", "off", "-j", options.jobs]
    blocks = dict(list(BLOCKS.items())[: options.blocks])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work = [("drawn calls", ["fuzz", "--cases", str(options.cases), "--seed", options.seed])]
        trace = captured(folder, STEP.format(root=str(ROOT)), "step")
        work += [("a training step", ["check", trace, "--distinct"])]
        if blocks:
            text = CAPTURED.format(root=str(ROOT), blocks=blocks, small=SMALL)
            trace = captured(folder, text, "blocks")
            work += [("modules of blocks", ["check", trace, "--phase", "forward", "--distinct", "--bisect"])]
        for what, command in work:
            began, out = time.monotonic(), folder / what.replace(" ", "-")
            command = ["ulpscope", *map(str, command), *how, "-o", str(out)]
            done = subprocess.run(command, stdout=subprocess.DEVNULL)
            if done.returncode == 2 and not (out / "result.db").exists():
                return 2
            told(f"{options.name}, {what}", out, time.monotonic() - began)
    return 0


if __name__ == "__main__":
    sys.exit(main())
