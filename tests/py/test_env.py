# SPDX-License-Identifier: Apache-2.0
"""`ulpscope env`: what numbers depend on is recorded, secrets are not, and of two records what
changes numbers is said first."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import torch
import schemas

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))


def env(*words, code=0, **variables):
    done = subprocess.run(
        [BUILD / "bin" / "ulpscope", "env", *map(str, words)],
        text=True,
        timeout=600,
        env={**os.environ, "ULPSCOPE_PYTHON": sys.executable, **variables},
        capture_output=True,
    )
    assert done.returncode == code, done
    return done


def test_what_numbers_depend_on_is_recorded_and_secrets_are_not(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "w").write_bytes(b"weights")
    secrets = {
        "TORCH_API_KEY": "hush1",
        "HF_TOKEN": "hush2",
        "MY_VARIABLE": "hush3",
        "NCCL_AUTH": "hush4",
        "TORCH_HUB": "https://me:hush5@host/",
    }
    done = env("--json", "--file", tmp_path / "data", CUBLAS_WORKSPACE_CONFIG=":4096:8", **secrets)
    found = schemas.one("env", done.stdout)
    assert "hush" not in done.stdout + done.stderr and "loading torch" in done.stderr
    assert found["variable.TORCH_API_KEY"] == "(set; not shown)" and "variable.HF_TOKEN" not in found
    assert found["variable.CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert found["version.torch"] == torch.__version__
    assert found["flag.are_deterministic_algorithms_enabled"] == "False"
    assert found["flag.get_float32_matmul_precision"] == "highest"
    assert {"hardware.cores", "hardware.cpu_capability", "version.kernel", "flag.is_autocast_enabled"} <= set(found)
    digest = hashlib.sha256(b"weights").hexdigest()
    assert found[f"file.{tmp_path / 'data' / 'w'}"] == f"7 bytes, sha256 {digest}"


def test_two_are_compared_and_what_changes_numbers_comes_first(tmp_path):
    a, b = tmp_path / "a", tmp_path / "b"
    env("-o", a)
    (tmp_path / "copy").write_bytes(a.read_bytes())
    (tmp_path / "link").symlink_to("a")
    assert "the same" in env("diff", a, tmp_path / "copy").stdout
    for same in (a, tmp_path / "link"):
        assert "is given twice" in env("diff", a, same, code=2).stderr
    lines = a.read_text().replace("matmul_precision\thighest", "matmul_precision\thigh").splitlines()
    lines = [f"version.torch\t{'9.9'}" if line.startswith("version.torch\t") else line for line in lines]
    b.write_text("\n".join([*lines, "variable.HCCL_DETERMINISTIC\ttrue", "variable.TORCH_HOME\t/x"]) + "\n")
    told = env("diff", a, b, code=1).stdout
    order = [
        "changes numbers",
        "get_float32_matmul_precision",
        "HCCL_DETERMINISTIC",
        "may change numbers",
        "version.torch",
        "seldom changes numbers",
        "TORCH_HOME",
    ]
    assert [told.index(word) for word in order] == sorted(told.index(word) for word in order)
    assert "(not there)" in told
    rows = schemas.one("env", env("diff", a, b, "--json", code=1).stdout)["differ"]
    assert [row["name"].split(".")[0] for row in rows] == ["flag", "variable", "version", "variable"]
    assert rows[1]["a"] is None and rows[1]["b"] == "true"


def test_a_command_tells_what_it_ends_with(tmp_path):
    file, out = tmp_path / "w", tmp_path / "x.env"
    file.write_bytes(b"weights")
    program = (
        "import os, torch; print('mine'); torch.backends.cuda.matmul.allow_tf32 = True;"
        "torch.use_deterministic_algorithms(True); os.environ['OMP_MINE'] = '7'; os.environ['NCCL_TOKEN'] = 'hush'"
    )
    assert env("-o", out, "--file", file, "--", sys.executable, "-c", program).stdout == "mine\n"
    told = dict(line.split("\t") for line in out.read_text().splitlines()[1:])
    assert told["flag.are_deterministic_algorithms_enabled"] == told["flag.backends.cuda.matmul.allow_tf32"] == "True"
    assert told["variable.OMP_MINE"] == "7" and told["variable.NCCL_TOKEN"] == "(set; not shown)"
    assert {"hardware.cores", "version.torch", f"file.{file}"} <= set(told) and "variable.ULPSCOPE_ENV" not in told
    assert env("-o", out, "--", sys.executable, "-c", "import torch; raise SystemExit(5)", code=5) and out.exists()
    assert "nothing was told" in env("--", sys.executable, "-c", "0", code=2).stderr
    assert "command not found" in env("--", tmp_path / "none", code=2).stderr


def test_trouble_is_a_sentence(tmp_path):
    (tmp_path / "x").write_text("x")
    assert "is not what ulpscope env -o writes" in env("diff", tmp_path / "x", tmp_path / "x", code=2).stderr
    assert "No such file" in env("diff", "none", "none", code=2).stderr
    assert "No such file" in env("--file", "none", code=2).stderr
    assert "env diff A B" in env("diff", "x", code=2).stderr
    assert "only reads" in env("diff", "x", "y", "-o", "z", code=2).stderr
