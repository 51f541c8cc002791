# SPDX-License-Identifier: Apache-2.0
"""What registers operators runs once, under whatever names it is asked for."""

import subprocess
import sys

import pytest

RUN = """
import sys
sys.path.insert(0, sys.argv[1])
from ulpscope.calls.homes import import_it, import_modules
exec(sys.argv[2])
"""
ASKED = {
    "a module of a package, then its file": "import_it('pack.ops'); import_it(sys.argv[1] + '/pack/ops.py')",
    "its file, then the module": "import_it(sys.argv[1] + '/pack/ops.py'); import_it('pack.ops')",
    "both at once": "import_modules(['pack.ops'], [sys.argv[1] + '/pack/../pack/ops.py'])",
    "the program had it": "import pack.ops; import_modules([], [sys.argv[1] + '/pack/ops.py'])",
    "a package by its folder's file": "import_it('pack'); import_it('pack.ops'); import_it('pack.ops')",
}


@pytest.mark.parametrize("asked", ASKED)
def test_it_runs_once(asked, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").write_text("")
    (tmp_path / "pack" / "ops.py").write_text(
        "import torch\nprint('ran')\nlibrary = torch.library.Library('usc_once', 'DEF')\nlibrary.define('f() -> ()')\n"
    )
    (tmp_path / "ops.py").write_text("print('another')\n")
    done = subprocess.run([sys.executable, "-c", RUN, tmp_path, ASKED[asked]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "ran\n"
    script = RUN + "import_it(sys.argv[1] + '/ops.py')"  # a file of the same name that is another
    done = subprocess.run([sys.executable, "-c", script, tmp_path, ASKED[asked]], capture_output=True, text=True)
    assert done.stdout == "ran\nanother\n", done.stderr


def test_a_file_of_an_installed_package_puts_no_folder_on_the_path(tmp_path):
    """Its neighbours are modules of that package alone; a relative import works, as it did where it was captured."""
    package = tmp_path / "site-packages" / "pack" / "integrations"
    package.mkdir(parents=True)
    for path, text in (
        (package.parent / "__init__.py", ""),
        (package / "__init__.py", ""),
        (package / "json.py", "raise ImportError('a neighbour of the same name')\n"),
        (package / "ops.py", "from .. import integrations\nprint('ran', __name__)\n"),
    ):
        path.write_text(text)
    asked = "import_it(sys.argv[1] + '/pack/integrations/ops.py'); sys.modules.pop('json', None); import json"
    done = subprocess.run([sys.executable, "-c", RUN, package.parents[1], asked], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "ran pack.integrations.ops\n"), done.stderr
