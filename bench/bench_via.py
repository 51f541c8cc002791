# SPDX-License-Identifier: Apache-2.0
"""What a runtime behind `--via NAME` makes of much: a training step, the modules of twenty of transformers'
architectures with weights drawn by their configuration, calls drawn at random. Says how many were judged, refused and
accused, and by operator what is accused; what is told of it in examples/found was argued there without the judge.

    ./run via openvino -q                            # installs it
    ./run bench via openvino:f32 iree tvm            # all, and goes on where it stopped: hours
    ./run bench via openvino:f32 iree --time 10m     # ten minutes of each
    ./run bench via --table                          # what there is, as docs/reference/via.md has it

Results are kept in BUILD/bench-via, a folder for each runtime. Its own Python is taken, BUILD/via/NAME, where
`./run via` made one."""

from __future__ import annotations

import argparse
import collections
import contextlib
import hashlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = Path(os.environ.get("ULPSCOPE_BUILD", ROOT / "build"))
KEPT = BUILD / "bench-via"

# class of a configuration in transformers: what makes it small; those with pictures take `pixel_values`
BLOCKS = {
    "Bert": {},
    "GPT2": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64},
    "ViT": {"image_size": 32, "patch_size": 8},
    "Llama": {"num_key_value_heads": 2},
    "ConvNext": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2},
    "Gemma2": {"num_key_value_heads": 2, "head_dim": 8},
    "ResNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]},
    "Bloom": {"n_layer": 2, "n_head": 4},
    "Swin": {
        "image_size": 32,
        "patch_size": 4,
        "window_size": 4,
        "embed_dim": 16,
        "depths": [2, 2],
        "num_heads": [2, 4],
    },
    "Qwen3": {"num_key_value_heads": 2, "head_dim": 8},
    "MobileNetV2": {"depth_multiplier": 0.25},
    "DistilBert": {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64},
    "RegNet": {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1], "groups_width": 8},
    "GPTNeoX": {},
    "Segformer": {"hidden_sizes": [16, 32], "depths": [1, 1], "num_encoder_blocks": 2},
    "MPNet": {},
    "Falcon": {},
    "Dinov2": {"image_size": 32, "patch_size": 8},
    "Albert": {"embedding_size": 32},
    "Phi": {},
}
SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
}
JUDGED = ("pass", "unjudged", "undefined", "unsupported")  # the rest is accused

CAPTURED = """
import os, sys
sys.path[:0] = [os.path.join({root!r}, "bench")]
import torch
import transformers
torch.manual_seed(7)
for name, more in {blocks!r}.items():
    try:
        kind = getattr(transformers, name + "Config")
        own_sizes = {{"hidden_sizes", "depths"}} & more.keys()
        config = kind(use_cache=False, **(more if own_sizes else {small!r} | more))
        model = transformers.AutoModel.from_config(config).eval()
        given = {{"input_ids": torch.randint(1, 64, (2, 12))}}
        if model.main_input_name == "pixel_values":
            given = {{"pixel_values": torch.randn(2, 3, 32, 32)}}
        with torch.no_grad():
            model(**given)
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


PARTS = {
    "step": "a training step",
    "modules": "modules of blocks",
    "drawn": "drawn calls",
}


def captured(text: str, name: str) -> Path:
    """The trace of a script, which one run of this makes for all that come after."""
    trace = KEPT / "traces" / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    if trace.exists():
        return trace
    trace.parent.mkdir(parents=True, exist_ok=True)
    script = trace.with_suffix(".py")
    script.write_text(text)
    with tempfile.TemporaryDirectory(dir=trace.parent) as folder:
        out = Path(folder) / "trace"
        subprocess.run(["ulpscope", "capture", "--steps", "0", "-o", out, "--", sys.executable, script], check=True)
        out.rename(trace)
    return trace


def command(part: str, options: argparse.Namespace) -> list[str]:
    """What judges a part."""
    if part == "step":
        return ["check", str(captured(STEP.format(root=str(ROOT)), "step")), "--distinct"]
    if part == "modules":
        blocks = dict(list(BLOCKS.items())[: options.blocks])
        text = CAPTURED.format(root=str(ROOT), blocks=blocks, small=SMALL)
        return ["check", str(captured(text, "blocks")), "--phase", "forward", "--distinct", "--bisect"]
    return ["fuzz", "--cases", str(options.cases), "--seed", options.seed]


def measured(name: str, part: str, seconds: int, options: argparse.Namespace) -> bool:
    """Judges a part for this long at most, from where it stopped. Whether there are results."""
    own = BUILD / "via" / name.partition(":")[0] / "bin" / "python"
    around = {**os.environ, **({"ULPSCOPE_PYTHON": str(own)} if own.exists() else {})}
    out = KEPT / name.replace(":", "-") / part
    out.parent.mkdir(parents=True, exist_ok=True)
    how = ["--device", "cpu", "--via", name, "--causes", "off", "-j", options.jobs, "--budget", f"{seconds}s"]
    how += ["-o", str(out), *(["--force"] if options.force else [])]
    print(f"bench: {name}, {PARTS[part]}, {seconds} s at most", file=sys.stderr, flush=True)
    began = time.monotonic()
    with open(out.with_suffix(".txt"), "w") as table:
        done = subprocess.run(["ulpscope", *command(part, options), *how], stdout=table, env=around)
    if not (out / "result.db").exists():
        print(f"bench: {name}, {PARTS[part]}: no result (exit code {done.returncode})", file=sys.stderr)
        return False
    row = counted(out)
    row["seconds"] = round(row.get("seconds", 0) + time.monotonic() - began)
    out.with_suffix(".json").write_text(json.dumps(row, indent=1))
    print(f"{name}, {PARTS[part]}: {told(row)}")
    for (op, verdict), (count, sentence) in row["accused"]:
        print(f"  {count:4} {verdict} {op}: {sentence[:160]}", flush=True)
    return True


def counted(out: Path) -> dict:
    """What a result holds, by verdict, and what is accused there."""
    before = json.loads(out.with_suffix(".json").read_text()) if out.with_suffix(".json").exists() else {}
    with contextlib.closing(sqlite3.connect(out / "result.db")) as base:
        rows = base.execute("SELECT op, verdict, sentence FROM verdict").fetchall()
        inputs = json.loads(dict(base.execute("SELECT key, value FROM run")).get("inputs", "{}"))
    accused = collections.defaultdict(list)
    for op, verdict, sentence in rows:
        if verdict not in JUDGED:
            accused[op, verdict].append(sentence)
    return {
        "versions": {key: text for key, text in inputs.items() if not key.startswith("file ")},
        "verdicts": dict(collections.Counter(verdict for _, verdict, _ in rows)),
        "accused": sorted(((key, (len(said), said[0])) for key, said in accused.items()), key=lambda x: -x[1][0]),
        "seconds": before.get("seconds", 0),
    }


def told(row: dict) -> str:
    """The counts of a part in words."""
    counts = row["verdicts"]
    kinds = sorted(counts, key=lambda kind: (JUDGED.index(kind) if kind in JUDGED else len(JUDGED), kind))
    said = ", ".join(f"{counts[kind]} {kind}" for kind in kinds)
    return f"{sum(counts.values())} in {row['seconds']} s: {said}"


def table() -> str:
    """All that is kept, as a table of Markdown."""
    lines = ["| runtime | what | calls | pass | accused | unsupported | not judged | accused of |", "|" + "---|" * 8]
    for folder in sorted(KEPT.glob("*/")):
        for part, what in PARTS.items():
            if not (folder / f"{part}.json").exists():
                continue
            row = json.loads((folder / f"{part}.json").read_text())
            counts = collections.Counter(row["verdicts"])
            accused = sum(counts[kind] for kind in counts if kind not in JUDGED)
            ops = collections.Counter()
            for (op, _), (count, _) in row["accused"]:
                ops[op.removeprefix("aten::")] += count
            named = ", ".join(f"{op} {count}" if count > 1 else op for op, count in ops.most_common())
            cells = [counts["pass"], accused, counts["unsupported"], counts["unjudged"] + counts["undefined"]]
            lines.append(
                f"| {folder.name} | {what} | {sum(counts.values())} | {' | '.join(map(str, cells))} | {named} |"
            )
    return "\n".join(lines)


def in_seconds(text: str) -> int:
    """90s, 10m, 1h."""
    return int(text.rstrip("smh")) * {"m": 60, "h": 3600}.get(text[-1], 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./run bench via", description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help="as behind --via: openvino, openvino:f32, iree, ...")
    parser.add_argument("--time", type=in_seconds, default=10800, help="of each runtime at most, 90s, 10m (default 3h)")
    parser.add_argument("--cases", type=int, default=900, help="drawn calls (default 900)")
    parser.add_argument("--blocks", type=int, default=len(BLOCKS), help="of transformers (default all)")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"of {','.join(PARTS)} (default all)")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", "-j", default="2")
    parser.add_argument("--force", action="store_true", help="anew, whatever is kept: another version of a runtime")
    parser.add_argument("--table", action="store_true", help="print what is kept, as Markdown")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if set(parts) - PARTS.keys():
        parser.error(f"--parts knows {', '.join(PARTS)}")
    if not options.names and not options.table:
        parser.error("name a runtime, as behind --via, or give --table")
    good = True
    for name in options.names:
        ends = time.monotonic() + options.time
        for i, part in enumerate(parts):
            good &= measured(name, part, max(1, round((ends - time.monotonic()) / (len(parts) - i))), options)
    if options.table:
        print(table())
    return 0 if good else 2


if __name__ == "__main__":
    sys.exit(main())
