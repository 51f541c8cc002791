# SPDX-License-Identifier: Apache-2.0
"""The document of the Ascend precheck, section by section, through ulpscope.compat: on the simulated
device with planted faults and on the CPU."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ulpscope.compat.api_accuracy_checker.common.config import Config, pattern, read_yaml

BUILD = Path(os.environ.get("ULPSCOPE_BUILD", Path(__file__).resolve().parents[2] / "build"))
RUN_UT = [sys.executable, "-m", "ulpscope.compat.api_accuracy_checker.run_ut.run_ut"]
OVERFLOW = [sys.executable, "-m", "ulpscope.compat.api_accuracy_checker.run_ut.run_overflow_check"]
FAULT = "addmm:bf16_inputs;mm:bf16_inputs"

SCRIPT = """
import torch, torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(24, 16), torch.randint(0, 4, (24,)))
def forward_step(x, y):
    loss = F.cross_entropy(model(x) + 1, y)
    opt.zero_grad(); loss.backward(); opt.step()
for x, y in DataLoader(data, batch_size=8):
    {loop}
print("went on to the end")
"""


def run(words, cwd, code=None, **environment):
    done = subprocess.run([str(w) for w in words], cwd=cwd, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1", **environment})  # fmt: skip
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim") / "here"
    said = run([BUILD / "bin" / "ulpscope", "compat", "install", "api_accuracy_checker", "-o", folder], folder.parent, 0)
    assert said.stdout == f'export PYTHONPATH="{folder}"${{PYTHONPATH:+:$PYTHONPATH}}\n'
    assert not list(folder.rglob("*.pth"))
    return folder


def train(folder, shim, head="import api_accuracy_checker.dump\n", loop="forward_step(x, y)", code=1):
    folder.mkdir(exist_ok=True)
    (folder / "main.py").write_text(head + SCRIPT.format(loop=loop))
    path = os.pathsep.join(filter(None, [str(shim), os.environ.get("PYTHONPATH")]))
    return run([sys.executable, "main.py"], folder, code, PYTHONPATH=path)


def files(folder, step="step1"):
    """forward, backward and stack of the one process."""
    found = []
    for word in ("forward", "backward", "stack"):
        (file,) = (folder / step).glob(f"{word}_info_*.json")
        assert file.stem.rpartition("_")[2].isdigit()
        found.append(json.loads(file.read_text()))
    return found


@pytest.fixture(scope="module")
def dumped(shim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("dumped")
    return folder, train(folder, shim)


@pytest.fixture(scope="module")
def real(shim, tmp_path_factory):
    folder = tmp_path_factory.mktemp("real")
    train(folder, shim, "from api_accuracy_checker.dump import msCheckerConfig\nmsCheckerConfig.update_config(real_data=True)\n")
    return folder


def tables(folder):
    """Both, as they are."""
    found = []
    for word in ("result", "details"):
        (file,) = folder.glob(f"accuracy_checking_{word}_*.csv")
        found.append(list(csv.reader(file.open(newline=""))))
    return found


def info(folder, word):
    (file,) = (folder / "step1").glob(f"{word}_info_*.json")
    return file


def precheck(folder, out, *more, device="sim", faults="", code=None):
    out.mkdir(exist_ok=True)
    words = [*RUN_UT, "-forward", info(folder, "forward"), "-backward", info(folder, "backward"), "-o", out, *more]
    return run(words, out, code, ULPSCOPE_COMPAT_DEVICE=device, ULPSCOPE_SIM_FAULTS=faults)


# ---- the dump ---------------------------------------------------------------------------


def test_the_import_captures_the_second_iteration_and_ends_the_training(dumped):
    folder, done = dumped
    assert done.stderr.rstrip().endswith("Exception: Model pretest: exit after iteration 1.")
    assert "went on" not in done.stdout
    assert sorted(p.name for p in folder.iterdir()) == ["main.py", "step1"]
    forward, backward, stack = files(folder)
    assert forward.keys() == stack.keys() and backward.keys() < forward.keys()
    assert {"Functional*linear*0", "Functional*linear*1", "Functional*dropout*0", "Functional*cross_entropy*0",
            "Tensor*add*0"} <= forward.keys()  # fmt: skip
    linear = forward["Functional*linear*0"]
    assert list(linear) == ["args", "kwargs"] and len(linear["args"]) == 3
    assert linear["args"][1] | {"Max": 0, "Min": 0, "Mean": 0, "Norm": 0} == {
        "type": "torch.Tensor", "dtype": "torch.float32", "shape": [32, 16], "Max": 0, "Min": 0, "Mean": 0,
        "Norm": 0, "requires_grad": True}  # fmt: skip
    assert [g["shape"] for g in backward["Functional*linear*0"]] == [[8, 32]]
    assert any("main.py, line" in line for line in stack["Functional*linear*0"])


def test_real_data_lie_in_folders_beside_and_are_what_was_computed_with(real):
    forward, backward, _ = files(real)
    for said, word in ((forward["Functional*linear*0"]["args"][1], "forward"), (backward["Functional*linear*0"][0], "backward")):
        assert f"step1/{word}_real_data/" in said["datapath"]
        tensor = torch.load(real / said["datapath"], weights_only=True)
        assert list(tensor.shape) == said["shape"] and tensor.max().item() == pytest.approx(said["Max"])


def test_the_switch_dumps_what_lies_between_and_lets_the_training_go_on(shim, tmp_path):
    head = "import api_accuracy_checker.dump as DP\n"
    loop = 'DP.dump.set_dump_switch("ON"); forward_step(x, y); DP.dump.set_dump_switch("OFF")'
    done = train(tmp_path / "w", shim, head, loop, code=0)
    assert "went on to the end" in done.stdout
    assert [p.name for p in sorted((tmp_path / "w").glob("step*"))] == ["step1", "step2", "step3"]
    assert "Functional*linear*0" in files(tmp_path / "w")[0]
    done = train(tmp_path / "v", shim, head, 'DP.dump.set_dump_switch("ON"); forward_step(x, y)', code=0)
    assert "Functional*linear*5" in files(tmp_path / "v")[0]  # everything from there on
    assert "'on' is neither" in train(tmp_path / "u", shim, head, 'DP.dump.set_dump_switch("on")').stderr


def test_target_iter_dump_path_and_white_list(shim, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    train(tmp_path / "w", shim, "from api_accuracy_checker.dump import msCheckerConfig\n"
          "msCheckerConfig.update_config(dump_path='../elsewhere', target_iter=[0, 1], white_list=['linear', '__add__'])\n")  # fmt: skip
    for step in ("step0", "step1"):
        assert {n.rsplit("*", 1)[0] for n in files(tmp_path / "elsewhere", step)[0]} == {"Functional*linear", "Tensor*add"}


@pytest.mark.parametrize("given, why", [
    ({"real_data": 1}, "real_data must be bool type"),
    ({"dump_path": 3}, "dump_path must be str type"),
    ({"dump_path": "/no/such/folder"}, "is no existing folder"),
    ({"target_iter": 1}, "target_iter must be list type"),
    ({"target_iter": [True]}, "target_iter must be a list of one int or more"),
    ({"target_iter": [-1]}, "target_iter must be a list of one int or more"),
    ({"target_iter": ["1"]}, "target_iter must be a list of one int or more"),
    ({"white_list": "conv1d"}, "white_list must be list type"),
    ({"white_list": [1]}, "white_list must be a list of str"),
    ({"white_list": ["con1d"]}, "con1d is not in support_wrap_ops.yaml; did you mean conv1d?"),
    ({"error_data_path": False}, "error_data_path must be str type"),
])  # fmt: skip
def test_update_config_checks_types_and_changes_nothing_then(given, why, tmp_path):
    config = Config(tmp_path / "config.yaml")
    before = str(config)
    with pytest.raises(ValueError, match=why.replace("?", r"\?")):
        config.update_config(**{"real_data": True} | given)
    assert str(config) == before


def test_config_yaml_is_read_as_people_write_it(tmp_path):
    (tmp_path / "config.yaml").write_text("# theirs\ndump_path: './'\nreal_data: true\ntarget_iter: [0, 2]\n"
                                          "white_list: [conv1d, \"conv2d\"]\nprecision: 14\n")  # fmt: skip
    config = Config(tmp_path / "config.yaml")
    assert (config.real_data, config.target_iter, config.white_list) == (True, [0, 2], ["conv1d", "conv2d"])
    (tmp_path / "l.yaml").write_text("white_list:\n  - conv1d\n  - relu # both\n")
    assert read_yaml(tmp_path / "l.yaml") == {"white_list": ["conv1d", "relu"]}
    assert pattern(["relu", "__add__", "__iadd__"]) == "*.relu,*.__add__,*.__iadd__,*.add,*.iadd,*.add_"


# ---- run_ut -----------------------------------------------------------------------------

RESULT = ["API name", "Forward Test Success", "Backward Test Success", "Message"]
DETAILS = ["Npu Name", "Bench Dtype", "NPU Dtype", "Shape", "Cosine Similarity", "Max Abs Error",
           "Relative  Error (dual hundredth)", "Relative  Error (dual thousandth)",
           "Relative  Error (dual ten thousandth)", "Error Rate", "Status"]  # fmt: skip


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_an_honest_device_passes(dumped, tmp_path, device):
    precheck(dumped[0], tmp_path / "o", device=device, code=0)
    result, details = tables(tmp_path / "o")
    assert result[0][:4] == RESULT and details[0][:11] == DETAILS
    assert [r[0] for r in result[1:]] == list(files(dumped[0])[0])  # each once, in their order
    assert {r[1] for r in result[1:]} == {"TRUE"} and {r[2] for r in result[1:]} == {"TRUE", "N/A"}
    assert next(r for r in result if r[0] == "Functional*dropout*0")[1:3] == ["TRUE", "TRUE"]
    assert {r[10] for r in details[1:]} == {"pass"}
    row = next(r for r in details if r[0] == "Functional*linear*0.forward.output.0")
    assert row[1:4] == ["torch.float64", "torch.float32", "[8, 32]"]


def test_a_fault_is_found_and_its_data_are_kept(real, tmp_path):
    done = precheck(real, tmp_path / "o", "-save_error_data", faults=FAULT, code=1)
    result, details = tables(tmp_path / "o")
    failed = {r[0] for r in result[1:] if "FALSE" in r[1:3]}
    assert failed == {"Functional*linear*0", "Functional*linear*1"}, done.stdout
    row = next(r for r in result if r[0] == "Functional*linear*0")
    assert row[1] == "FALSE" and "rounded to bfloat16" in row[3] and row[4] == "reduced" and 6 < float(row[5]) < 10
    assert next(r for r in details if r[0] == "Functional*linear*0.forward.output.0")[10] == "error"
    (folder,) = (tmp_path / "o").glob("ut_error_data*")
    given = torch.load(folder / "Functional.linear.0.forward.input.args[0].pt", weights_only=True)
    answer = torch.load(folder / "Functional.linear.0.forward.output.device.out[0].pt", weights_only=True)
    truth = torch.load(folder / "Functional.linear.0.forward.output.bench.out[0].pt", weights_only=True)
    assert given.shape == (8, 16) and 1e-4 < (answer.double() - truth).abs().max() < 1


def test_a_run_that_was_killed_goes_on_from_its_table(dumped, tmp_path):
    words = [*RUN_UT, "-forward", info(dumped[0], "forward"), "-o", tmp_path]
    environment = {**os.environ, "ULPSCOPE_COMPAT_DEVICE": "sim", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([str(w) for w in words], cwd=tmp_path, env=environment, start_new_session=True,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    until = time.monotonic() + 120
    while not list(tmp_path.glob("*/results/result.db")) and time.monotonic() < until:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (table,) = tmp_path.glob("accuracy_checking_result_*.csv")
    run([*words, "-csv_path", table], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE="sim")
    result, _ = tables(tmp_path)
    names = [r[0] for r in result[1:]]
    assert names == list(files(dumped[0])[0])
    before = table.read_bytes()
    run([*words, "-csv_path", table], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE="sim")  # nothing is left to do
    assert table.read_bytes() == before
    other = tmp_path / "mine.csv"
    other.write_bytes(before)
    assert "must keep its name" in run([*words, "-csv_path", other], tmp_path, 2).stderr


def test_the_script_in_its_folder_and_its_config_yaml(shim, dumped, tmp_path):
    """`cd run_ut; python run_ut.py`; the white list of config.yaml before run_ut."""
    import shutil

    shutil.copytree(shim, tmp_path / "shim")
    package = tmp_path / "shim" / "api_accuracy_checker"
    text = (package / "config.yaml").read_text()
    (package / "config.yaml").write_text(text.replace("white_list: []", 'white_list: ["linear"]').replace("device: ''", "device: sim"))
    run([sys.executable, "run_ut.py", "-forward", info(dumped[0], "forward")], package / "run_ut", 0)
    result, _ = tables(package / "run_ut")
    assert [r[0] for r in result[1:]] == ["Functional*linear*0", "Functional*linear*1"]
    (package / "config.yaml").write_text(text.replace("white_list: []", "white_list: [liner]"))
    done = run([sys.executable, "run_ut.py", "-forward", info(dumped[0], "forward")], package / "run_ut", 2)
    assert "did you mean linear?" in done.stderr


# ---- run_overflow_check -------------------------------------------------------------------


def described(tensor, high):
    return {"type": "torch.Tensor", "dtype": f"torch.{tensor}", "shape": [4, 8], "Max": high, "Min": -high,
            "requires_grad": False}  # fmt: skip


def test_an_overflow_is_normal_or_abnormal(tmp_path):
    calls = {"Torch*exp*0": {"args": [described("float32", 1000.0)], "kwargs": {}},
             "Torch*abs*0": {"args": [described("float32", 1.0)], "kwargs": {}}}  # fmt: skip
    (tmp_path / "forward_info_0.json").write_text(json.dumps(calls))
    words = [*OVERFLOW, "-forward", tmp_path / "forward_info_0.json"]
    honest = run(words, tmp_path, 0, ULPSCOPE_COMPAT_DEVICE="sim").stdout.splitlines()
    assert honest[0].startswith("Torch*exp*0: normal: an honest computation")
    assert honest[1] == "Torch*abs*0: normal: nothing overflows"
    for fault, code, told in (("abs:nan", 1, "abnormal: "), ("abs:scale:factor=2", 0, "normal: nothing overflows"),
                              ("abs:crash", 2, "untold: ")):  # fmt: skip
        broken = run(words, tmp_path, code, ULPSCOPE_COMPAT_DEVICE="sim", ULPSCOPE_SIM_FAULTS=fault).stdout.splitlines()
        assert broken[1].startswith("Torch*abs*0: " + told), broken
    assert sorted(p.name for p in tmp_path.iterdir()) == ["forward_info_0.json"]
