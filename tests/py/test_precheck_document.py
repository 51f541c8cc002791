# SPDX-License-Identifier: Apache-2.0
"""The document of the Ascend precheck, executed through ulpscope.compat: its sections in their
order, each promise a test or a row, on the simulated device with planted faults and on the CPU.
What lies beyond the document (a run that was killed, values of a wrong type) stands with the
section that it belongs to."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time

import precheck_program
import pytest
import torch
from precheck_program import LONG, RUN_UT, SCRIPT, SHORT, described, files, info, precheck, run, small, tables, train

from ulpscope.compat.api_accuracy_checker.common.config import Config, pattern, read_yaml

shim, dumped, real = precheck_program.shim, precheck_program.dumped, precheck_program.real  # fixtures
FAULT = "addmm:bf16_inputs;mm:bf16_inputs"


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
