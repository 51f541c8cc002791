// SPDX-License-Identifier: Apache-2.0
// Names of Python at each target: musa, sim, npu, xpu. NULL: a human decides. X("device"
// is a function whose first argument names the device.
#include "port/port_names.h"

#define NAME USC_PORT_PY_NAME
#define IMPORT USC_PORT_PY_IMPORT
#define CALL USC_PORT_PY_CALL
#define TEXT USC_PORT_PY_TEXT
#define WORD USC_PORT_PY_WORD
/* clang-format off */

const usc_port_family usc_port_families_python[] = {
    /* what the simulated device has; all else of torch.cuda is left there */
    {NAME, "torch.cuda.", {"torch.musa.", "torch.sim.", "torch.npu.", "torch.xpu."},
     "Event Stream StreamContext can_device_access_peer current_device current_stream default_generators "
     "default_stream device device_count device_of empty_cache get_device_capability get_device_name "
     "get_device_properties get_per_process_memory_fraction get_rng_state get_rng_state_all graph "
     "graph_pool_handle init initial_seed "
     "ipc_collect is_available is_bf16_supported is_current_stream_capturing is_initialized is_tf32_supported "
     "make_graphed_callables manual_seed manual_seed_all max_memory_allocated max_memory_reserved mem_get_info memory_allocated "
     "memory_reserved memory_snapshot memory_stats memory_stats_as_nested_dict memory_summary "
     "reset_accumulated_memory_stats reset_peak_memory_stats seed seed_all set_device "
     "set_per_process_memory_fraction set_rng_state set_rng_state_all set_stream stream synchronize"},
    {NAME, "torch.cuda.", {NULL, NULL, NULL, NULL},
     "nvtx cudart jiterator comm sparse tunable gds green_contexts"},
    {TEXT, "torch.cuda.", {"torch.musa.", "torch.sim.", "torch.npu.", "torch.xpu."},
     "FloatTensor DoubleTensor HalfTensor BFloat16Tensor IntTensor LongTensor ByteTensor BoolTensor CharTensor "
     "ShortTensor"},
    {0},
};

const usc_port_row usc_port_rows_python[] = {
    {NAME, "torch.cuda", {"torch.musa", "torch.sim!", "torch.npu", "torch.xpu"}},
    {IMPORT, "torch.cuda", {"torch_musa", "ulpscope.sim", "torch_npu.npu", "torch.xpu"}},
    {NAME, "torch.cuda.CUDAGraph", {"torch.musa.MUSAGraph", "torch.sim.SimGraph", "torch.npu.NPUGraph", NULL}},
    {NAME, "torch.cuda.amp.autocast", {"torch.musa.amp.autocast", "torch.sim.amp.autocast", "torch.npu.amp.autocast", "torch.amp.autocast(\"xpu\""}},
    {NAME, "torch.cuda.amp.GradScaler", {"torch.musa.amp.GradScaler", "torch.sim.amp.GradScaler", "torch.npu.amp.GradScaler", "torch.amp.GradScaler(\"xpu\""}},
    {NAME, "torch.cuda.amp", {"torch.musa.amp", "torch.sim.amp", "torch.npu.amp", "torch.amp"}},
    {NAME, "torch.cuda.amp.custom_fwd", {"torch.musa.amp.custom_fwd", "torch.sim.amp.custom_fwd", "torch.npu.amp.custom_fwd", NULL}},
    {NAME, "torch.cuda.amp.custom_bwd", {"torch.musa.amp.custom_bwd", "torch.sim.amp.custom_bwd", "torch.npu.amp.custom_bwd", NULL}},
    {IMPORT, "torch.cuda.amp", {"torch_musa.amp", "ulpscope.sim.amp", "torch_npu.npu.amp", "torch.amp"}},
    {NAME, "torch.version.cuda", {NULL, NULL, NULL, NULL}},
    {NAME, "torch.backends.cuda.matmul.allow_tf32", {"torch.backends.mudnn.allow_tf32", "torch.backends.sim.matmul.allow_tf32", NULL, NULL}},
    {NAME, "torch.backends.cudnn.allow_tf32", {"torch.backends.mudnn.allow_tf32", "torch.backends.sim.conv.allow_tf32", NULL, NULL}},
    {NAME, "torch.backends.cudnn", {NULL, NULL, NULL, NULL}},
    {NAME, "torch.backends.cuda", {NULL, NULL, NULL, NULL}},
    {NAME, "torch.distributed.is_nccl_available", {"torch.distributed.is_backend_available(\"mccl\"", "torch.distributed.is_backend_available(\"simccl\"", "torch.distributed.is_backend_available(\"hccl\"", "torch.distributed.is_xccl_available"}},
    {NAME, "torch.profiler.ProfilerActivity.CUDA", {"torch.profiler.ProfilerActivity.MUSA", "torch.profiler.ProfilerActivity.PrivateUse1", NULL, "torch.profiler.ProfilerActivity.XPU"}},
    {NAME, "ProfilerActivity.CUDA", {"ProfilerActivity.MUSA", "ProfilerActivity.PrivateUse1", NULL, "ProfilerActivity.XPU"}},
    {CALL, "cuda", {"musa", "sim", "npu", "xpu"}},
    {CALL, "is_cuda", {"is_musa", "is_sim", "is_npu", "is_xpu"}},
    {TEXT, "cuda", {"musa", "sim", "npu", "xpu"}},
    {TEXT, "nccl", {"mccl", "simccl", "hccl", "xccl"}},
    {TEXT, "CUDA", {"PrivateUse1", "PrivateUse1", "PrivateUse1", "XPU"}},
    {TEXT, "AutogradCUDA", {"AutogradPrivateUse1", "AutogradPrivateUse1", "AutogradPrivateUse1", "AutogradXPU"}},
    {TEXT, "AutocastCUDA", {"AutocastPrivateUse1", "AutocastPrivateUse1", "AutocastPrivateUse1", "AutocastXPU"}},
    {TEXT, "CUDA_VISIBLE_DEVICES", {"MUSA_VISIBLE_DEVICES", "ULPSCOPE_SIM_VISIBLE_DEVICES", "ASCEND_RT_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"}},
    {TEXT, "CUDA_LAUNCH_BLOCKING", {"MUSA_LAUNCH_BLOCKING", "ULPSCOPE_SIM_LAUNCH_BLOCKING", "ASCEND_LAUNCH_BLOCKING", NULL}},
    {TEXT, "PYTORCH_CUDA_ALLOC_CONF", {"PYTORCH_MUSA_ALLOC_CONF", NULL, "PYTORCH_NPU_ALLOC_CONF", NULL}},
    {TEXT, "cuda_time_total", {"musa_time_total", "device_time_total", NULL, "xpu_time_total"}},
    {TEXT, "self_cuda_time_total", {"self_musa_time_total", "self_device_time_total", NULL, "self_xpu_time_total"}},
    {TEXT, "nvidia-smi", {NULL, NULL, NULL, NULL}}, /* a test for a device that chooses the CPU now */
    {TEXT, "nvcc", {"mcc", "simcc", NULL, NULL}},
    /* ---- extensions */
    {NAME, "torch.utils.cpp_extension.CUDAExtension", {"torch_musa.utils.musa_extension.MUSAExtension", "ulpscope.extension.SimExtension", NULL, NULL}},
    {NAME, "torch.utils.cpp_extension.BuildExtension", {"torch_musa.utils.musa_extension.BuildExtension", "ulpscope.extension.BuildExtension", "torch.utils.cpp_extension.BuildExtension", "torch.utils.cpp_extension.BuildExtension"}},
    {NAME, "torch.utils.cpp_extension.CUDA_HOME", {"torch_musa.utils.musa_extension.MUSA_HOME", NULL, NULL, NULL}},
    {NAME, "torch.utils.cpp_extension.load", {"torch_musa.utils.musa_extension.load", "ulpscope.extension.load", NULL, "torch.utils.cpp_extension.load"}},
    {NAME, "torch.utils.cpp_extension.load_inline", {"torch_musa.utils.musa_extension.load_inline", "ulpscope.extension.load_inline", NULL, "torch.utils.cpp_extension.load_inline"}},
    {IMPORT, "torch.utils.cpp_extension", {"torch_musa.utils.musa_extension", "ulpscope.extension", "torch.utils.cpp_extension", "torch.utils.cpp_extension"}},
    {WORD, "cuda_sources", {"musa_sources", "sim_sources", NULL, "sycl_sources"}},
    {WORD, "extra_cuda_cflags", {"extra_musa_cflags", "extra_sim_cflags", NULL, "extra_sycl_cflags"}},
    {0},
};
