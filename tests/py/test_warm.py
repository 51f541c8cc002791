# SPDX-License-Identifier: Apache-2.0
"""What stands for an interpreter in tests (tests/warm): a program sees of what is loaded only what it asks for,
and what it spawns is a fork as it is one itself, which ends as it would end."""

import os
import signal
import subprocess
import sys

import pytest

if not os.environ.get("ULPSCOPE_WARM"):
    pytest.skip("a plain interpreter: run by tests/files.py", allow_module_level=True)


def printed(code, folder, *options):
    (folder / "program.py").write_text(code)
    done = subprocess.run(
        [sys.executable, *options, "program.py"], cwd=folder, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.parametrize("name", ["pytest", "_pytest", "torch._dynamo", "sympy"])
def test_what_is_loaded_is_seen_when_it_is_asked_for(name, tmp_path):
    code = f"import sys, torch\nprint('{name}' in sys.modules)\nimport {name}\nprint('{name}' in sys.modules)"
    assert printed(code, tmp_path) == ["False", "True"]


SPAWNS = """
import os, signal, sys, torch

def work(how):
    forked = any(type(finder).__name__ == "Loaded" for finder in sys.meta_path)
    print(forked, os.path.isabs(sys.executable), flush=True)
    sys.exit(how) if how >= 0 else os.kill(os.getpid(), -how)

if __name__ == "__main__":
    child = torch.multiprocessing.get_context("spawn").Process(target=work, args=(HOW,))
    child.start()
    child.join()
    print(child.exitcode)
"""


@pytest.mark.parametrize("how", [0, 3, -signal.SIGKILL])
def test_what_a_program_spawns_is_forked_and_ends_as_it_did(how, tmp_path):
    assert printed(SPAWNS.replace("HOW", str(int(how))), tmp_path) == ["True", "True", str(int(how))]


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ("ignore", ["-W", "ignore", "-u"]),
        ("ignore::UserWarning", ["-Wignore::UserWarning"]),
        ("error", ["-u", "-Werror"]),
        ("error", ["-W", "error"]),
    ],
)
def test_warnings_are_what_its_options_ask_for(said, options, tmp_path):
    code = """
import sys, warnings
try:
    warnings.warn("as it is", stacklevel=1)
except UserWarning:
    print("raised")
print(any(type(finder).__name__ == "Loaded" for finder in sys.meta_path), *sys.warnoptions)
"""
    assert printed(code, tmp_path, *options) == ["raised"] * (said == "error") + ["True", said]
