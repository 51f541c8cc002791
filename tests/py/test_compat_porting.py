# SPDX-License-Identifier: Apache-2.0
"""ulpscope compat install torch_musa: its converters by their own names and options, and each known defect of
theirs shown absent."""

import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """The environment after the two lines that `compat install` prints."""
    folder = tmp_path_factory.mktemp("shim")
    said = subprocess.run(
        ["ulpscope", "compat", "install", "torch_musa", "-o", folder],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    path, programs = (line.split('"')[1] for line in said.splitlines())
    assert path == str(folder.resolve()) and programs == f"{path}/bin:$PATH"
    bin_python = folder / "python"  # programs of the shim begin with python3: the one that has ulpscope
    bin_python.mkdir()
    (bin_python / "python3").symlink_to(sys.executable)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "PATH": f"{path}/bin:{os.environ['PATH']}",
        "SHIM": path,
    }


def run(shim, *words, cwd=None):
    if words[0] in ("musa-converter", "musify-text"):
        words = (sys.executable, f"{shim['SHIM']}/bin/{words[0]}", *words[1:])
    return subprocess.run([str(w) for w in words], env=shim, cwd=cwd, capture_output=True, text=True)


def module(shim, name, *words, cwd=None):
    return run(shim, sys.executable, "-m", f"torch_musa.utils.{name}", *words, cwd=cwd)


def write(folder, **files):
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_DOT_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


# ---- musa-converter


def convert(shim, folder, *words):
    done = run(shim, "musa-converter", "-r", folder, *words)
    assert done.returncode == 0, done.stderr
    return done


def test_the_manuals_command_converts_in_place_and_can_be_taken_back(shim, tmp_path):
    before = '"""Trains."""\nfrom __future__ import annotations\nimport torch\nx = torch.ones(2, device="cuda")\n'
    source = write(
        tmp_path / "yolo",
        train_DOT_py=before,
        models__net_DOT_py="import torch\ny = x.cuda()\n",
        notes_DOT_md="cuda\n",
        a_DOT_cu="cudaFree(p);\n",
    )
    convert(shim, source, "-l", source / "train.py")
    assert (source / "train.py").read_text() == before.replace(
        "import torch\n", "import torch_musa\nimport torch\n"
    ).replace('"cuda"', '"musa"')
    assert (source / "models/net.py").read_text() == "import torch\ny = x.musa()\n"
    assert (source / "a.cu").read_text() == "cudaFree(p);\n"  # Python alone
    subprocess.run(["ulpscope", "port", source, "--revert"], check=True, capture_output=True)
    assert (source / "train.py").read_text() == before


@pytest.mark.parametrize(
    "what",
    [
        "barracuda = 1",
        "Accumulate = 2",
        'state = {"note": "made with cuda:0 by hand"}',
        "# runs on cuda and nccl",
        "my_nccl_thing = nvccflags",
    ],
)
def test_parts_of_words_and_texts_stay(shim, tmp_path, what):
    source = write(tmp_path / "s", a_DOT_py=what + "\nx.cuda()\n")
    convert(shim, source)
    assert (source / "a.py").read_text() == what + "\nx.musa()\n"


def test_twice_is_once_also_for_the_import(shim, tmp_path):
    source = write(tmp_path / "s", t_DOT_py="import torch\nx.cuda()\n")
    convert(shim, source, "-l", source / "t.py")
    once = (source / "t.py").read_text()
    convert(shim, source, "-l", source / "t.py")
    assert (source / "t.py").read_text() == once and once.count("import torch_musa") == 1


@pytest.mark.parametrize(
    "head",
    [
        '"""Doc."""\n',
        "from __future__ import annotations\n",
        "#!/usr/bin/env python\n",
        "# -*- coding: utf-8 -*-\n",
        '"""Doc."""\nfrom __future__ import division\n',
    ],
)
def test_what_has_to_stand_first_does(shim, tmp_path, head):
    source = write(tmp_path / "s", t_DOT_py=head + "import main\n")
    convert(shim, source, "-l", source / "t.py")
    text = (source / "t.py").read_text()
    assert text == head + "import torch_musa\nimport main\n"
    compile(text, "t.py", "exec")


def test_a_file_that_does_not_parse_stays_and_the_others_go_on(shim, tmp_path):
    source = write(tmp_path / "s", a_DOT_py="x = 'cuda\n", b_DOT_py="x.cuda()\n")
    done = convert(shim, source)
    assert (source / "a.py").read_text() == "x = 'cuda\n" and (source / "b.py").read_text() == "x.musa()\n"
    assert "a.py:1: unended" in done.stdout


def test_what_is_excluded_are_files_and_folders_by_spaces_or_commas(shim, tmp_path):
    text = "x.cuda()\n"
    source = write(tmp_path / "s", a_DOT_py=text, b_DOT_py=text, c_DOT_py=text, d__e_DOT_py=text)
    convert(shim, source, "-e", f"{source}/a.py,{source}/b.py", source / "d")
    assert [p.read_text() for p in sorted(source.rglob("*.py"))] == [text, text, "x.musa()\n", text]
    done = run(shim, "musa-converter", "-r", source, "-e", source / "none.py")
    assert done.returncode == 2 and "none.py: no such file" in done.stderr


def test_settings_of_cudnn_are_told(shim, tmp_path):
    source = write(tmp_path / "s", a_DOT_py="import torch\ntorch.backends.cudnn.benchmark = True\n")
    assert "torch.backends.cudnn" in convert(shim, source).stdout


# ---- SimplePorting

PORT = "from torch_musa.utils.simple_porting import SimplePorting; import sys; SimplePorting(**eval(sys.argv[1])).run()"


def simple(shim, **options):
    done = run(shim, sys.executable, "-c", PORT, repr(options))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("slash", ["", "/"])
def test_the_output_lies_beside_the_folder_and_an_old_one_is_replaced(shim, tmp_path, slash):
    source = write(
        tmp_path / "cuda",
        a_DOT_cu='#include "b.cuh"\ncudaFree(p);\n',
        b_DOT_cuh="int x;\n",
        barracuda_DOT_h="\n",
        c_DOT_cpp='#include "barracuda.h"\n',
    )
    write(tmp_path / "cuda_musa", old_DOT_mu="\n")
    simple(shim, cuda_dir_path=f"{source}{slash}")
    out = tmp_path / "cuda_musa"
    assert sorted(p.name for p in out.iterdir()) == ["a.mu", "b.muh", "barracuda.h", "c.cpp"]
    assert (out / "a.mu").read_text() == '#include "b.muh"\nmusaFree(p);\n'
    assert (out / "c.cpp").read_text() == '#include "barracuda.h"\n'


def test_rules_of_the_user_win(shim, tmp_path):
    source = write(tmp_path / "cuda", a_DOT_cu="cudaFree(p); cudaMalloc(&q);\n")
    mapping = write(
        tmp_path / "maps",
        a_DOT_json=json.dumps({"cudaFree": "fromFile", "cudaMalloc": "alsoFromFile"}),
    )
    simple(
        shim,
        cuda_dir_path=str(source),
        mapping_rule={"cudaFree": "mine"},
        mapping_dir_path=str(mapping),
    )
    assert (tmp_path / "cuda_musa/a.mu").read_text() == "mine(p); alsoFromFile(&q);\n"
    simple(
        shim,
        cuda_dir_path=str(source),
        mapping_rule={"cudaFree": "mine"},
        drop_default_mapping=True,
    )
    assert (tmp_path / "cuda_musa/a.mu").read_text() == "mine(p); cudaMalloc(&q);\n"


def test_code_behind_a_comment_is_ported_and_a_line_with_cub(shim, tmp_path):
    source = write(
        tmp_path / "cuda",
        a_DOT_cu="/* x */ cudaFree(p);\n#include <cub/cub.cuh> // x\ncub::f(cudaFree(p)); // cub/x\n",
    )
    simple(shim, cuda_dir_path=str(source))
    assert (tmp_path / "cuda_musa/a.mu").read_text() == (
        "/* x */ musaFree(p);\n#include <cub/cub.cuh> // x\ncub::f(musaFree(p)); // cub/x\n"
    )


def test_what_lies_in_an_ignored_folder_is_ignored_too(shim, tmp_path):
    source = write(
        tmp_path / "cuda",
        a_DOT_cu="cudaFree(p);\n",
        old__b_DOT_cu="cudaFree(p);\n",
        old__older__c_DOT_cu="cudaFree(p);\n",
    )
    simple(shim, cuda_dir_path=str(source), ignore_dir_paths=[f"{source}/old"])
    out = tmp_path / "cuda_musa"
    assert {str(p.relative_to(out)): p.read_text() for p in out.rglob("*") if p.is_file()} == {
        "a.mu": "musaFree(p);\n",
        "old/b.cu": "cudaFree(p);\n",
        "old/older/c.cu": "cudaFree(p);\n",
    }


@pytest.mark.parametrize(
    "code, ported",
    [
        ("x.is_cuda();", "x.is_privateuseone();"),
        ("cublasSgemm(h);", "mublasSgemm(h);"),
        ("C10_CUDA_CHECK(e);", "C10_MUSA_CHECK(e);"),
        (
            "#include <ATen/cuda/CUDAContext.h>",
            '#include "torch_musa/csrc/aten/musa/MUSAContext.h"',
        ),
    ],
)
def test_what_the_defaults_lacked(shim, tmp_path, code, ported):
    source = write(tmp_path / "cuda", a_DOT_cpp=code + "\n")
    simple(shim, cuda_dir_path=str(source))
    assert (tmp_path / "cuda_musa/a.cpp").read_text() == ported + "\n"


def test_the_module_has_its_options(shim, tmp_path):
    write(tmp_path / "cuda", a_DOT_cu="cudaFree(p); cudaNew(q);\n", old__b_DOT_cu="cudaFree(p);\n")
    done = module(
        shim,
        "simple_porting",
        "--cuda-dir-path",
        "cuda/",
        "--ignore-dir-paths",
        '["cuda/old"]',
        "--mapping-rule",
        '{"cudaNew": "musaNew"}',
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "cuda_musa/a.mu").read_text() == "musaFree(p); musaNew(q);\n"
    assert (tmp_path / "cuda_musa/old/b.cu").read_text() == "cudaFree(p);\n"
    done = module(shim, "simple_porting", "--cuda-dir-path", "none", cwd=tmp_path)
    assert done.returncode == 2 and "none: no such folder" in done.stderr and "Traceback" not in done.stderr


def test_rules_that_are_no_names_are_told_and_the_others_hold(shim, tmp_path):
    source = write(tmp_path / "cuda", a_DOT_cu="#ifdef CUDART_VERSION\ncudaFree(p);\n#endif\n")
    mapping = write(
        tmp_path / "maps",
        extra_DOT_json=json.dumps({"#ifdef CUDART_VERSION": "#if 0", "cudaFree": "f"}),
    )
    done = run(
        shim,
        sys.executable,
        "-c",
        PORT,
        repr({"cuda_dir_path": str(source), "mapping_dir_path": str(mapping)}),
    )
    assert done.returncode == 0 and "'#ifdef CUDART_VERSION'" in done.stderr
    assert (tmp_path / "cuda_musa/a.mu").read_text() == "#ifdef CUDART_VERSION\nf(p);\n#endif\n"


# ---- musify-text

TEXT = (
    "cudaFree(p); cudaFreed(p);\n// MUSIFY_EXCL_START\ncudaFree(q);\n// MUSIFY_EXCL_STOP\n"
    "cudaFree(r); // MUSIFY_EXCL_LINE\n"
)
MUSIFIED = TEXT.replace("cudaFree(p)", "musaFree(p)", 1)


def test_the_three_ways_out_and_the_markers(shim, tmp_path):
    path = write(tmp_path, a_DOT_cu=TEXT) / "a.cu"
    done = run(shim, "musify-text", "-t", path)
    assert done.returncode == 0 and done.stdout == MUSIFIED and path.read_text() == TEXT
    assert run(shim, "musify-text", "-c", path).returncode == 0
    assert (tmp_path / "a.cu.mt").read_text() == MUSIFIED and path.read_text() == TEXT
    assert run(shim, "musify-text", "-i", "-l", "INFO", path).returncode == 0
    assert path.read_text() == MUSIFIED
    assert run(shim, "musify-text", "-i", "-d", "m2c", path).returncode == 0
    assert path.read_text() == TEXT


def test_mappings_over_the_table_or_alone(shim, tmp_path):
    path = write(tmp_path, a_DOT_cu="cudaFree(cudaMine);\n", m_DOT_json='{"cudaMine": "musaMine"}') / "a.cu"
    mapping = tmp_path / "m.json"
    assert run(shim, "musify-text", path, "-m", mapping).stdout == "musaFree(musaMine);\n"
    assert run(shim, "musify-text", path, "--clear-mapping", "-m", mapping).stdout == "cudaFree(musaMine);\n"
    path.write_text("musaFree(musaMine);\n")
    assert run(shim, "musify-text", path, "-d", "m2c", "-m", mapping).stdout == "cudaFree(cudaMine);\n"
    mapping.write_text("[")
    done = run(shim, "musify-text", path, "-m", mapping)
    assert done.returncode == 2 and "m.json is no mapping" in done.stderr


def test_the_real_package_keeps_all_else(shim, tmp_path):
    (tmp_path / "torch_musa/utils").mkdir(parents=True)
    for name, text in {
        "__init__": "VERSION = 7\n",
        "utils/__init__": "",
        "utils/musa_extension": "MUSAExtension = 8\n",
    }.items():
        (tmp_path / f"torch_musa/{name}.py").write_text(text)
    code = (
        "import torch_musa; from torch_musa.utils.musa_extension import MUSAExtension; "
        "from torch_musa.utils import simple_porting; print(torch_musa.VERSION, MUSAExtension, simple_porting.__name__)"
    )
    environment = {**shim, "PYTHONPATH": f"{shim['PYTHONPATH']}{os.pathsep}{tmp_path}"}
    assert (
        run(environment, sys.executable, "-c", code).stdout == "7 8 ulpscope.compat.torch_musa.utils.simple_porting\n"
    )
