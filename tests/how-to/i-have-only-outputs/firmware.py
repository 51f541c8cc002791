# SPDX-License-Identifier: Apache-2.0
"""Stands for the firmware, the simulation, the compiler: computes every call of a pack of
addmm with NumPy, and saves what it got."""

import json

import numpy
from safetensors.numpy import load_file, save_file

outputs = {}
for call in json.load(open("pack/pack.json"))["calls"]:
    tensors = load_file(f"pack/{call['inputs_file']}")
    bias, x, weight = (tensors[argument["tensor"]] for argument in call["args"][:3])
    outputs[call["outputs"][0]["name"]] = numpy.float32(bias) + x @ weight
save_file(outputs, "outputs.safetensors")
