mkdir -p p/dump_tensor_data && : >p/dump_tensor_data/a.pt
printf '{"data": {"Torch.abs.0.forward": {"input_args": [{"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "data_name": "a.pt"}], "input_kwargs": {}}}}' >p/dump.json
ulpscope import p -o imported_pt; code=$?; ls -d imported_pt*; exit $code
