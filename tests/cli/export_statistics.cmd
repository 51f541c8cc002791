mkdir e && printf '{"data": {"Torch.abs.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": -Infinity}], "input_kwargs": {"out": {}, "dim": {"type": "int", "value": 3}}, "output": []}}}' >e/dump.json
ulpscope import e -o e_trace >/dev/null && ulpscope export e_trace -o e_dump && cat e_dump/step0/rank0/dump.json e_dump/step0/rank0/construct.json
ulpscope export e_trace -o e_old --format ascend-v1 && cat e_old/step0/forward_info_0.json
