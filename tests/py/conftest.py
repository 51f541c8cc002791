# SPDX-License-Identifier: Apache-2.0
"""What every test needs of its surroundings."""

import os
import shutil
import signal
from pathlib import Path

import pytest
import torch

from ulpscope.causes import host

# What a test asks for is the name, and not how busy the machine is.
host.SECONDS = 20.0

# A shell that runs the tests in the background has interrupts ignored, and all children
# would inherit that; some tests interrupt theirs.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A device's backward runs in a thread that keeps the number of threads it was born with, and
# bits hang on it: tests of one process that use the device before and after another set it.
torch.set_num_threads(1)

# A mistake of ours is raised, also where a program that is not ours must not be hurt by it.
os.environ["ULPSCOPE_STRICT"] = "1"

# That is for this process (tests/files.py), and not for the ones of pytest that tests start.
os.environ.pop("PYTEST_DISABLE_PLUGIN_AUTOLOAD", None)

# What tests compile, a run before has compiled: torch's headers take a minute.
if Path("/usr/lib/ccache/g++").exists():
    os.environ["PATH"] = f"/usr/lib/ccache:{os.environ['PATH']}"

# Unbuffered, a print of several words is several writes, and ranks that share an output mix them.
os.environ.pop("PYTHONUNBUFFERED", None)


@pytest.fixture(autouse=True, scope="session")
def compiled_in_a_run_before(tmp_path_factory):
    """Where there is ccache, it finds that again, though each run has a folder of another name; also what is
    compiled with headers that were parsed before, half a gigabyte, whose digest it keeps."""
    os.environ.update(
        CCACHE_BASEDIR=str(tmp_path_factory.getbasetemp()),
        CCACHE_NOHASHDIR="1",
        CCACHE_SLOPPINESS="pch_defines,time_macros",
        CCACHE_INODECACHE="1",
    )


@pytest.fixture(scope="module")
def same_place(request, tmp_path_factory):
    """An empty folder that has one name in all runs of a build: for sources of which the product keeps what it
    compiles by where they lie, so that a run finds what one before it compiled."""
    if not (places := os.environ.get("ULPSCOPE_TEST_PLACES")):  # not by tests/files.py
        return tmp_path_factory.mktemp(request.module.__name__)
    place = Path(places) / request.module.__name__
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place
