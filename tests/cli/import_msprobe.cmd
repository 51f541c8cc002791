mkdir d && printf '{"framework": "pytorch", "data": {"Torch.abs.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": -1.0}], "input_kwargs": {}}, "Module.fc.Linear.forward.0": {}}}' >d/dump.json
ulpscope import d -o imported && ulpscope show imported
