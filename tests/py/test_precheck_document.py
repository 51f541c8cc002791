# SPDX-License-Identifier: Apache-2.0
"""The document of the Ascend precheck, executed through ulpscope.compat: its sections in their
order, each promise a test or a row, on the simulated device with planted faults and on the CPU.
What lies beyond the document (a run that was killed, values of a wrong type) stands with the
section that it belongs to."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import sqlite3
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
    done = subprocess.run(
        [str(w) for w in words],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim") / "here"
    said = run(
        [BUILD / "bin" / "ulpscope", "compat", "install", "api_accuracy_checker", "-o", folder], folder.parent, 0
    )
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
    (folder / "kept").mkdir()
    train(
        folder,
        shim,
        "from api_accuracy_checker.dump import msCheckerConfig\n"
        "msCheckerConfig.update_config(real_data=True, error_data_path='kept')\n",
    )
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


# ---- "Features" and "Installation" ------------------------------------------------------


def test_nothing_but_torch_has_to_be_installed(shim, tmp_path):
    """The document asks for tqdm, rich and pyyaml; one line on PYTHONPATH is all here."""
    (tmp_path / "m.py").write_text(
        "import sys\nsys.modules.update(tqdm=None, rich=None, yaml=None)\n"
        "import api_accuracy_checker.dump as DP\nprint(DP.dump.set_dump_switch)\n"
    )
    run(
        [sys.executable, "m.py"], tmp_path, 0, PYTHONPATH=os.pathsep.join([str(shim), os.environ.get("PYTHONPATH", "")])
    )


def test_random_mode_keeps_no_tensor(dumped, real):
    """Random data and real data; the first takes little room."""
    size = [sum(f.stat().st_size for f in folder.rglob("step1/**/*") if f.is_file()) for folder in (dumped[0], real)]
    assert not list(dumped[0].rglob("*.pt")) and len(list(real.rglob("*.pt"))) > 20 and size[0] < size[1] / 2


# ---- "How to use it", 1: the dump -------------------------------------------------------


def test_the_import_captures_the_second_iteration_and_ends_the_training(dumped):
    folder, done = dumped
    assert done.stderr.rstrip().endswith("Exception: Model pretest: exit after iteration 1.")
    assert "went on" not in done.stdout
    assert sorted(p.name for p in folder.iterdir()) == ["main.py", "step1"]
    forward, backward, stack = files(folder)
    assert forward.keys() == stack.keys() and backward.keys() < forward.keys()
    assert {
        "Functional*linear*0",
        "Functional*linear*1",
        "Functional*dropout*0",
        "Functional*cross_entropy*0",
        "Tensor*add*0",
    } <= forward.keys()
    linear = forward["Functional*linear*0"]
    assert list(linear) == ["args", "kwargs"] and len(linear["args"]) == 3
    assert linear["args"][1] | {"Max": 0, "Min": 0, "Mean": 0, "Norm": 0} == {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": [32, 16],
        "Max": 0,
        "Min": 0,
        "Mean": 0,
        "Norm": 0,
        "requires_grad": True,
    }
    assert [g["shape"] for g in backward["Functional*linear*0"]] == [[8, 32]]
    assert any("main.py, line" in line for line in stack["Functional*linear*0"])
    # what makes the batches is no call of the network's: of 8 samples 2 tensors each, and 2 stacks
    assert not {n for n in forward if "__getitem__" in n or "stack" in n}
    assert (
        "18 calls by which the data loader made its batches left out (dataloader_calls in config.yaml)" in done.stderr
    )


def test_real_data_lie_in_folders_beside_and_are_what_was_computed_with(real):
    forward, backward, _ = files(real)
    for said, word in (
        (forward["Functional*linear*0"]["args"][1], "forward"),
        (backward["Functional*linear*0"][0], "backward"),
    ):
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
    everything = files(tmp_path / "v")[0]  # from there on, but what makes batches
    assert "Functional*linear*5" in everything and "Tensor*__getitem__*0" not in everything
    assert "'on' is neither" in train(tmp_path / "u", shim, head, 'DP.dump.set_dump_switch("on")').stderr


def test_every_process_writes_its_own_set_of_files(shim, tmp_path):
    """One for each card."""
    (tmp_path / "main.py").write_text(
        "import os\nprint(os.getpid())\nimport api_accuracy_checker.dump\n" + SCRIPT.format(loop="forward_step(x, y)")
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(shim), os.environ.get("PYTHONPATH", "")])}
    both = [
        subprocess.Popen(
            [sys.executable, "main.py"],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    numbers = []
    for process in both:
        out, err = process.communicate(timeout=300)
        assert err.rstrip().endswith("exit after iteration 1.")
        numbers.append(out.split()[0])
    for word in ("forward", "backward", "stack"):
        names = {f"{word}_info_{number}.json" for number in numbers}
        assert {p.name for p in (tmp_path / "step1").glob(f"{word}_*")} == names


# ---- "msCheckerConfig.update_config" and "White list" -----------------------------------


def test_defaults_of_update_config(tmp_path):
    config = Config(tmp_path / "config.yaml")
    assert (config.dump_path, config.real_data, config.target_iter, config.white_list) == ("./", False, [1], [])
    config.update_config(target_iter=list(range(0, 9)))
    assert (config.target_iter, config.real_data) == (list(range(9)), False)  # what is not given stays


def test_target_iter_dump_path_and_white_list(shim, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    train(
        tmp_path / "w",
        shim,
        "from api_accuracy_checker.dump import msCheckerConfig\n"
        "msCheckerConfig.update_config(dump_path='../elsewhere', target_iter=[0, 1], white_list=['linear', "
        "'__add__'])\n",
    )
    for step in ("step0", "step1"):
        assert {n.rsplit("*", 1)[0] for n in files(tmp_path / "elsewhere", step)[0]} == {
            "Functional*linear",
            "Tensor*add",
        }


@pytest.mark.parametrize(
    "given, why",
    [
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
    ],
)
def test_update_config_checks_types_and_changes_nothing_then(given, why, tmp_path):
    config = Config(tmp_path / "config.yaml")
    before = str(config)
    with pytest.raises(ValueError, match=why.replace("?", r"\?")):
        config.update_config(**{"real_data": True} | given)
    assert str(config) == before


def test_config_yaml_is_read_as_people_write_it(tmp_path):
    (tmp_path / "config.yaml").write_text(
        "# theirs\ndump_path: './'\nreal_data: true\ntarget_iter: [0, 2]\n"
        'white_list: [conv1d, "conv2d"]\nprecision: 14\n'
    )
    config = Config(tmp_path / "config.yaml")
    assert (config.real_data, config.target_iter, config.white_list) == (True, [0, 2], ["conv1d", "conv2d"])
    (tmp_path / "l.yaml").write_text("white_list:\n  - conv1d\n  - relu # both\n")
    assert read_yaml(tmp_path / "l.yaml") == {"white_list": ["conv1d", "relu"]}
    assert pattern(["relu", "__add__", "__iadd__"]) == "*.relu,*.__add__,*.__iadd__,*.add,*.iadd,*.add_"


# ---- "How to use it", 2 and 3: run_ut; "Results": its tables ----------------------------

RESULT = ["API name", "Forward Test Success", "Backward Test Success", "Message"]
DETAILS = [
    "Npu Name",
    "Bench Dtype",
    "NPU Dtype",
    "Shape",
    "Cosine Similarity",
    "Max Abs Error",
    "Relative  Error (dual hundredth)",
    "Relative  Error (dual thousandth)",
    "Relative  Error (dual ten thousandth)",
    "Error Rate",
    "Status",
]


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
    (folder,) = (real / "kept").glob("ut_error_data*")  # as the program that made the dump said
    given = torch.load(folder / "Functional.linear.0.forward.input.args[0].pt", weights_only=True)
    answer = torch.load(folder / "Functional.linear.0.forward.output.device.out[0].pt", weights_only=True)
    truth = torch.load(folder / "Functional.linear.0.forward.output.bench.out[0].pt", weights_only=True)
    assert given.shape == (8, 16) and 1e-4 < (answer.double() - truth).abs().max() < 1


def described(dtype, high, shape=(4, 8), **more):
    return {
        "type": "torch.Tensor",
        "dtype": f"torch.{dtype}",
        "shape": list(shape),
        "Max": high,
        "Min": -high,
        "requires_grad": False,
        **more,
    }


def small(folder, calls, backward=None):
    """A dump written by hand: name -> arguments, or arguments and keywords."""
    folder.mkdir(exist_ok=True)
    stated = {name: {"args": list(args), "kwargs": {}} for name, args in calls.items()}
    (folder / "forward_info_0.json").write_text(json.dumps(stated))
    (folder / "backward_info_0.json").write_text(json.dumps(backward or {}))
    return folder


SHORT = {"forward": "-forward", "backward": "-backward", "out": "-o", "jit": "-j", "device": "-d", "csv": "-csv_path"}
LONG = {
    "forward": "--forward_input_file",
    "backward": "--backward_input_file",
    "out": "--out_path",
    "jit": "--jit_compile",
    "device": "--device",
    "csv": "--result_csv_path",
}


@pytest.mark.parametrize("device, words", [("sim", SHORT), ("cpu", LONG)], ids=["sim-short", "cpu-long"])
def test_every_option_of_run_ut_by_both_of_its_names(tmp_path, device, words):
    given = described("float32", 1.0, requires_grad=True)
    small(tmp_path, {"Torch*tanh*0": [given]}, {"Torch*tanh*0": [described("float32", 1.0)]})
    (tmp_path / "o").mkdir()
    command = [*RUN_UT, words["forward"], "./forward_info_0.json"]
    more = [
        words["backward"],
        "./backward_info_0.json",
        words["out"],
        "o",
        words["jit"],
        words["device"],
        1,
        "-save_error_data",
    ]
    said = run([*command, *more], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE=device).stdout
    result, details = tables(tmp_path / "o")
    assert result[1][:3] == ["Torch*tanh*0", "TRUE", "TRUE"] and "0 failing calls: ./ut_error_data" in said
    assert [r[0] for r in details[1:]] == [f"Torch*tanh*0.{way}.output.0" for way in ("forward", "backward")]
    (database,) = (tmp_path / "o").glob("*/results/result.db")
    with contextlib.closing(sqlite3.connect(database)) as db:
        settings = dict(db.execute("select * from run"))
    # there is one CPU; inductor generates no code for sim
    assert settings["device"] == ("cpu via inductor" if device == "cpu" else "sim:1 via aot_eager")
    (table,) = (tmp_path / "o").glob("accuracy_checking_result_*.csv")
    before = table.read_bytes()
    run([*command, words["csv"], table], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE=device)  # nothing is left to do
    assert table.read_bytes() == before
    run(command, tmp_path, 0, ULPSCOPE_COMPAT_DEVICE=device)  # -backward may be left out; -o is here then
    assert tables(tmp_path)[0][1][:3] == ["Torch*tanh*0", "TRUE", "N/A"]


IN_PLACE = {  # name -> arguments behind the first, keywords; the backward operator of the first two is damaged
    "Functional*relu*0": ([], {"inplace": {"type": "bool", "value": True}}),
    "Tensor*div_*0": ([{"type": "int", "value": 2}], {}),
    "Functional*threshold*0": (
        [{"type": "float", "value": 0.1}, {"type": "int", "value": 0}, {"type": "bool", "value": True}],
        {},
    ),
    "Tensor*clamp_*0": ([{"type": "float", "value": -0.5}, {"type": "float", "value": 0.5}], {}),
    "Tensor*__setitem__*0": ([{"type": "int", "value": 1}, {"type": "float", "value": 0.5}], {}),
}


@pytest.mark.parametrize(
    "faults, judged",
    [
        ("", ["TRUE"] * 5),
        (
            "threshold_backward:scale:factor=2;div.Scalar:scale:factor=1.5;div.Tensor:scale:factor=1.5",
            ["FALSE", "FALSE", "FALSE", "TRUE", "TRUE"],
        ),
    ],
)
def test_the_backward_pass_of_what_writes_its_argument(tmp_path, faults, judged):
    """A dump holds no results, so it does not tell that relu(inplace=True), x /= 2 write."""
    x = described("float32", 1.0, requires_grad=True)
    small(tmp_path, {}, {name: [described("float32", 1.0)] for name in IN_PLACE})
    stated = {name: {"args": [x, *args], "kwargs": keywords} for name, (args, keywords) in IN_PLACE.items()}
    (tmp_path / "calls.json").write_text(json.dumps(stated))  # a file may have any name
    words = [*RUN_UT, "-forward", "calls.json", "-backward", "backward_info_0.json"]
    run(words, tmp_path, int(bool(faults)), ULPSCOPE_COMPAT_DEVICE="sim", ULPSCOPE_SIM_FAULTS=faults)
    result, _ = tables(tmp_path)
    assert [r[2] for r in result[1:]] == judged and {r[1] for r in result[1:]} <= {"TRUE", "FALSE"}, result


def test_what_passes_the_old_rule_alone_is_told_last(tmp_path):
    """Rule 2 lets errors below 0.001 go, however large they are for their numbers."""
    small(tmp_path, {"Torch*tanh*0": [described("float32", 1e-3)], "Torch*exp*0": [described("float32", 1.0)]})
    command = [*RUN_UT, "-forward", "forward_info_0.json"]
    said = run(command, tmp_path, 0, ULPSCOPE_COMPAT_DEVICE="sim", ULPSCOPE_SIM_FAULTS="tanh:scale:factor=1.01").stdout
    assert said.startswith("2 APIs by the precheck's rule: 2 pass, none fails, 0 skipped\n")
    assert said.endswith(
        "\n1 of those that do not fail is accused by our verdict (1 wrong), e.g. Torch*tanh*0; "
        "with --strict that is exit code 1\n"
    )
    (table,) = tmp_path.glob("accuracy_checking_result_*.csv")
    run([*command, "-csv_path", table, "--strict"], tmp_path, 1)


@pytest.mark.parametrize(
    "words, why",
    [
        (["-forward", "nowhere.json"], "nowhere.json"),
        (["-backward", "forward_info_0.json"], "-forward FILE is needed"),
        (["-forward", "forward_info_0.json", "-d", "x"], "-d"),
        (["-forward", "forward_info_0.json", "-d", "77"], "77"),
        (["-forward", "forward_info_0.json", "-o", "nowhere"], "there is no such folder"),
        (
            ["-forward", "forward_info_0.json", "-csv_path", "accuracy_checking_result_20260101000000.csv"],
            "No such file",
        ),
    ],
)
def test_what_run_ut_cannot_do_is_said(tmp_path, words, why):
    small(tmp_path, {"Torch*tanh*0": [described("float32", 1.0)]})
    done = run([*RUN_UT, *words], tmp_path, 2, ULPSCOPE_COMPAT_DEVICE="sim")
    assert why in done.stderr and "Traceback" not in done.stderr


def test_a_run_that_was_killed_goes_on_from_its_table(dumped, tmp_path):
    words = [*RUN_UT, "-forward", info(dumped[0], "forward"), "-o", tmp_path]
    environment = {**os.environ, "ULPSCOPE_COMPAT_DEVICE": "sim", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [str(w) for w in words],
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
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
    (package / "config.yaml").write_text(
        text.replace("white_list: []", 'white_list: ["linear"]').replace("device: ''", "device: sim")
    )
    run([sys.executable, "run_ut.py", "-forward", info(dumped[0], "forward")], package / "run_ut", 0)
    result, _ = tables(package / "run_ut")
    assert [r[0] for r in result[1:]] == ["Functional*linear*0", "Functional*linear*1"]
    (package / "config.yaml").write_text(text.replace("white_list: []", "white_list: [liner]"))
    done = run([sys.executable, "run_ut.py", "-forward", info(dumped[0], "forward")], package / "run_ut", 2)
    assert "did you mean linear?" in done.stderr


# ---- "Indicators": the rules of Status --------------------------------------------------

N = 1000


def off(share, by, size=100.0):
    """Numbers of this size, of which a share is off by that much of themselves."""
    bench = torch.linspace(0.5, 1, N) * size
    device = bench.double()
    device[: round(share * N)] *= 1 + by
    return device, bench


LOW, WIDE = (torch.float16, torch.bfloat16), (torch.float32, torch.float64)
RULES = [  # rule, dtypes, (device, bench), status
    (
        "1: a cosine of 0.99 or less",
        LOW + WIDE,
        (torch.tensor([0.0, 1.0] * 8).double(), torch.tensor([1.0, 0.0] * 8)),
        "error",
    ),
    (
        "1: before the size of the error",
        WIDE,
        (torch.tensor([0.0, 1e-6] * 8).double(), torch.tensor([1e-6, 0.0] * 8)),
        "error",
    ),
    ("2: errors below 0.001, however large for their numbers", LOW + WIDE, off(1, 0.5, 1e-3), "pass"),
    ("3: hundredth, all off by 2 %", LOW + WIDE, off(1, 0.03), "error"),
    ("3: hundredth, 2 % of them off by 3 %", LOW, off(0.02, 0.03), "error"),
    ("3: thousandth, 0.5 % of them off by 3 %", LOW, off(0.005, 0.03), "warning"),
    ("3: thousandth, 0.5 % of them off by 3 %", WIDE, off(0.005, 0.03), "error"),
    ("3: ten thousandth, all off by 0.05 %", WIDE, off(1, 5e-4), "warning"),
    ("3: nothing is off", LOW + WIDE, off(0, 0), "pass"),
    ("3: all off by 0.005 %", WIDE, off(1, 5e-5), "pass"),
]


@pytest.mark.parametrize(
    "dtype, operands, status, rule",
    [
        pytest.param(dtype, operands, status, rule, id=f"{rule} {dtype}")
        for rule, dtypes, operands, status in RULES
        for dtype in dtypes
    ],
)
def test_rules_one_to_three(dtype, operands, status, rule):
    import ulpscope

    device, bench = operands[0].to(dtype), operands[1].to(dtype)
    said = ulpscope.judge_call(torch.clone, (bench,), outputs=device, standard="ascend-v1")
    assert said.status == status, (rule, said)


@pytest.mark.parametrize(
    "factor, first, second, success",
    [(1.0, "pass", "pass", "TRUE"), (1.0005, "warning", "pass", "FALSE"), (1.002, "error", "pass", "FALSE")],
)
def test_rule_four_all_outputs_must_pass_and_a_warning_does_not(tmp_path, factor, first, second, success):
    """Of var_mean the mean is small, so that what it is off by stays below the limit of rule 2."""
    small(tmp_path, {"Torch*var_mean*0": [described("float32", 10.0, (64, 64))]})
    run(
        [*RUN_UT, "-forward", "forward_info_0.json"],
        tmp_path,
        0 if factor == 1 else 1,
        ULPSCOPE_COMPAT_DEVICE="sim",
        ULPSCOPE_SIM_FAULTS=f"var_mean:scale:factor={factor}",
    )
    result, details = tables(tmp_path)
    assert [r[10] for r in details[1:]] == [first, second] and result[1][1:3] == [success, "N/A"]


# ---- "Overflow parser" ------------------------------------------------------------------


@pytest.mark.parametrize("device, words", [("sim", SHORT), ("cpu", LONG)], ids=["sim-short", "cpu-long"])
def test_an_overflow_is_normal_or_abnormal(tmp_path, device, words):
    small(tmp_path / "d", {"Torch*exp*0": [described("float32", 1000.0)], "Torch*abs*0": [described("float32", 1.0)]})
    command = [*OVERFLOW, words["forward"], "forward_info_0.json"]
    honest = run([*command, words["jit"], words["device"], 1], tmp_path / "d", 0, ULPSCOPE_COMPAT_DEVICE=device)
    honest = honest.stdout.splitlines()
    assert honest[0].startswith("Torch*exp*0: normal: an honest computation")
    assert honest[1] == "Torch*abs*0: normal: nothing overflows"
    faults = (
        ("abs:nan", 1, "abnormal: "),
        ("abs:scale:factor=2", 0, "normal: nothing overflows"),
        ("abs:crash", 2, "untold: "),
    )
    for fault, code, told in faults if device == "sim" else ():
        broken = run(
            command, tmp_path / "d", code, ULPSCOPE_COMPAT_DEVICE=device, ULPSCOPE_SIM_FAULTS=fault
        ).stdout.splitlines()
        assert broken[1].startswith("Torch*abs*0: " + told), broken
    assert sorted(p.name for p in (tmp_path / "d").iterdir()) == ["backward_info_0.json", "forward_info_0.json"]


def test_overflows_of_the_backward_pass_which_the_document_leaves_out(tmp_path):
    given = described("float32", 1.0, requires_grad=True)
    small(tmp_path, {"Torch*tanh*0": [given]}, {"Torch*tanh*0": [described("float32", 1.0)]})
    words = [*OVERFLOW, "-forward", "forward_info_0.json", "-backward", "backward_info_0.json"]
    said = run(
        words, tmp_path, 1, ULPSCOPE_COMPAT_DEVICE="sim", ULPSCOPE_SIM_FAULTS="tanh_backward:inf"
    ).stdout.splitlines()
    assert said[0] == "Torch*tanh*0: normal: nothing overflows" and said[1].startswith(
        "Torch*tanh*0 backward: abnormal: "
    )


# ---- "FAQ" ------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["sim", "cpu"])
@pytest.mark.parametrize(
    "dtype, bench",
    [
        ("bfloat16", "float32"),
        ("float16", "float32"),
        ("float32", "float64"),
        ("float64", "float64"),
        ("int64", "int64"),
    ],
)
def test_faq_1_and_3_dtypes_and_what_they_are_held_to(tmp_path, device, dtype, bench):
    """bfloat16 is no unsupported scalar; a CPU that computes float16 does it in float32."""
    x = described(dtype, 9, (8, 8))
    small(tmp_path, {"Torch*matmul*0": [x, x], "Torch*add*0": [x, x]})
    run([*RUN_UT, "-forward", "forward_info_0.json"], tmp_path, ULPSCOPE_COMPAT_DEVICE=device)
    result, details = tables(tmp_path)
    assert {r[4] for r in result[1:]} == {"pass"}
    # rule 3 warns of bfloat16's own rounding, which is larger than a thousandth
    assert result[1][1] == ("FALSE" if dtype == "bfloat16" else "TRUE") and result[2][1] in ("TRUE", result[1][1])
    assert {r[10] for r in details[1:]} <= ({"pass", "warning"} if dtype == "bfloat16" else {"pass"})
    assert {tuple(r[1:3]) for r in details[1:]} == {(f"torch.{bench}", f"torch.{dtype}")}


@pytest.mark.parametrize(
    "fault, success",
    [("", "TRUE"), ("native_dropout:drop_tail:n=300", "FALSE"), ("native_dropout:scale:factor=1.05", "FALSE")],
)
def test_faq_2_dropout_is_judged_by_its_share_of_zeros(tmp_path, fault, success):
    """And its kept values by their scale."""
    x = described("float32", 1.0, (64, 64))
    stated = {"Functional*dropout*0": {"args": [x], "kwargs": {"p": {"type": "float", "value": 0.3}}}}
    (tmp_path / "forward_info_0.json").write_text(json.dumps(stated))
    run(
        [*RUN_UT, "-forward", "forward_info_0.json"],
        tmp_path,
        int(bool(fault)),
        ULPSCOPE_COMPAT_DEVICE="sim",
        ULPSCOPE_SIM_FAULTS=fault,
    )
    assert tables(tmp_path)[0][1][1] == success


MAGIC = {  # the table of FAQ 4: what a program writes for each
    "__add__": "x + y",
    "__and__": "i & j",
    "__bool__": "bool(x[0, 0])",
    "__div__": "x.__div__(y)",
    "__eq__": "x == y",
    "__ge__": "x >= y",
    "__gt__": "x > y",
    "__iadd__": "x += y",
    "__iand__": "i &= j",
    "__idiv__": "x.__idiv__(y)",
    "__ifloordiv__": "x //= y",
    "__ilshift__": "i <<= j",
    "__imod__": "x %= y",
    "__imul__": "x *= y",
    "__ior__": "i |= j",
    "__irshift__": "i >>= j",
    "__isub__": "x -= y",
    "__ixor__": "i ^= j",
    "__lshift__": "i << j",
    "__matmul__": "x @ y",
    "__mod__": "x % y",
    "__mul__": "x * y",
    "__nonzero__": "x[0, 0].__nonzero__()",
    "__or__": "i | j",
    "__radd__": "2 + x",
    "__rmul__": "2 * x",
    "__rshift__": "i >> j",
    "__sub__": "x - y",
    "__truediv__": "x / y",
    "__xor__": "i ^ j",
}


@pytest.fixture(scope="module")
def magic(shim, tmp_path_factory):
    """Everything in the table, each as often as its place says."""
    folder = tmp_path_factory.mktemp("magic")
    names = ", ".join(f"'{name}'" for name in MAGIC)
    lines = [
        f"x, y = X.clone(), Y.clone(); i, j = I.clone(), J.clone(); DP.dump.set_dump_switch('ON'); {what}; "
        "DP.dump.set_dump_switch('OFF')"
        for what in MAGIC.values()
    ]
    (folder / "main.py").write_text(
        "import api_accuracy_checker.dump as DP, torch\nfrom api_accuracy_checker.dump import msCheckerConfig\n"
        f"msCheckerConfig.update_config(white_list=[{names}])\n"
        "X, Y = torch.rand(4, 4) + 1, torch.rand(4, 4) + 1; I, J = torch.arange(16).view(4, 4), torch.ones(4, "
        "4).long()\n" + "\n".join(lines) + "\n"
    )
    run(
        [sys.executable, "main.py"],
        folder,
        0,
        PYTHONPATH=os.pathsep.join([str(shim), os.environ.get("PYTHONPATH", "")]),
    )
    return folder


def test_faq_4_every_magic_function_of_the_table_is_captured_under_its_white_list(magic):
    import fnmatch

    for step, name in enumerate(MAGIC, 1):
        (recorded,) = files(magic, f"step{step}")[0]
        plain = recorded.replace("Tensor*", "torch.Tensor.").replace("Torch*", "torch.").rpartition("*")[0]
        assert any(fnmatch.fnmatch(plain, p) for p in pattern([name]).split(",")), (name, recorded)


@pytest.mark.parametrize("device", ["sim", "cpu"])
def test_faq_4_every_magic_function_of_the_table_is_judged(magic, tmp_path, device):
    calls = {}
    for step in range(1, len(MAGIC) + 1):
        ((recorded, call),) = files(magic, f"step{step}")[0].items()
        calls[f"{recorded.rpartition('*')[0]}*{step}"] = call
    (tmp_path / "forward_info_0.json").write_text(json.dumps(calls))
    run([*RUN_UT, "-forward", "forward_info_0.json"], tmp_path, 0, ULPSCOPE_COMPAT_DEVICE=device)
    result, _ = tables(tmp_path)
    assert len(result) == len(MAGIC) + 1 and {r[1] for r in result[1:]} == {"TRUE"}, result
