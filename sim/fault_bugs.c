// SPDX-License-Identifier: Apache-2.0
// Bugs that devices are known to have had, as faults that do alike under the same
// conditions, each with where it was told.
#include "fault_parts.h"

#include "nearest.h"

#include <string.h>

#define TORCH "https://github.com/pytorch/pytorch/"

static const struct {
    const char *name, *faults, *link;
} bugs[] = {
    {"mps_addcmul_noncontiguous",
     "aten::addcmul_,aten::addcdiv_:inplace_lost:layout=strided", TORCH "issues/118115"},
    {"mps_matmul_out_slice", "aten::mm.out:inplace_lost:layout=strided",
     TORCH "issues/104832"},
    {"mps_copy_gappy_views", "sim::copy:wrong_stride:layout=strided",
     TORCH "issues/189961"},
    {"cuda_avgpool_backward_channels_last",
     "aten::avg_pool2d_backward:shifted_tail:n=1e9:layout=channels_last:argument=padding",
     TORCH "issues/188344"},
    {"sdpa_efficient_stride0_kv",
     "*scaled_dot_product*:wrong_stride:layout=strided:argument=attn_bias;"
     "*scaled_dot_product*:wrong_stride:layout=strided:argument=attn_mask",
     TORCH "issues/191937"},
    {"spyre_sdpa_views", "*scaled_dot_product*:wrong_stride:layout=strided:dtype=float16",
     "https://github.com/torch-spyre/torch-spyre/issues/4331"},
    {"metal_rms_norm_partial_simdgroup", "aten::mean.dim:rest_missing:of=32:remainder=32",
     "https://github.com/ggml-org/llama.cpp/pull/26708"},
    {"mps_topk_over_16", "aten::topk:row_tail:from=16", TORCH "issues/78915"},
    {"mps_argsort_large", "aten::sort,aten::argsort:swap_two:more=4194304",
     TORCH "issues/183885"},
    {"miopen_conv_backward_dilation",
     "aten::convolution_backward:shifted_tail:n=1e9:dtype=float32:argument=dilation",
     "https://github.com/ROCm/legacy-rocm-build/issues/4606"},
    {"mps_sdpa_causal_leak",
     "*scaled_dot_product*:causal_leak:rows=4:dtype=*16:argument=is_causal",
     TORCH "issues/195910"},
    {"rocm_all_always_true", "aten::all,aten::any:constant:value=1",
     TORCH "issues/99721"},
    {"gather_backward_duplicates", "aten::scatter_add,aten::scatter_add_:overwrites",
     TORCH "issues/1631"},
    {"mps_cross_entropy_ignore_index", "aten::nll_loss*:ignored:argument=ignore_index",
     TORCH "issues/108148"},
    {"xpu_nonzero_truncated", "aten::nonzero:rows_lost:n=1",
     "https://github.com/intel/torch-xpu-ops/issues/4396"},
    {"cuda_arange_2pow32", "aten::arange*:drop_tail:n=1:more=4294967296",
     TORCH "issues/197673"},
    {"ort_softmax_int32", "aten::_softmax:stale_tail:n=1e9:more=2147483648",
     "https://github.com/microsoft/onnxruntime/issues/32299"},
    {"tf32_matmul", "*mm,*mm.out:tf32", "https://github.com/ml-explore/mlx/issues/3860"},
    {"layer_norm_cancellation", "aten::native_layer_norm:variance_moments",
     "https://github.com/ml-explore/mlx/issues/2238"},
    {"npu_rms_norm_bf16_scale", "aten::rsqrt:bf16_output",
     "https://github.com/amd/IRON/pull/139"},
    {"tpu_neuron_fp32_as_bf16", "*mm,*mm.out,*convolution*:bf16_inputs:dtype=float32",
     TORCH "xla/issues/8811"},
    {"clamp_swallows_nan",
     "aten::clamp,aten::clamp_,aten::clamp.out:nan_swallowed:argument=max",
     TORCH "issues/15338"},
    {"metal_tanh_nan", "aten::tanh,aten::tanh_,aten::tanh.out:nan_beyond:limit=44",
     TORCH "pull/172406"},
    {"norm_overflow_both_sides", "aten::native_*_norm:nan_beyond:limit=1e17",
     TORCH "pull/178123"},
    {"mps_randperm_two_runs", "aten::randperm*:two_runs", TORCH "issues/104170"},
    {"mps_multinomial_always_zero", "aten::multinomial:constant:value=0",
     TORCH "issues/99802"},
    {"cuda_multinomial_zero_weight", "aten::multinomial:zero_one:index=7:p=0.01",
     TORCH "issues/48841"},
    {"half_sum_dim_overflow", "aten::sum*:accumulate_fp16:dtype=float16",
     TORCH "issues/2391"},
    {"litert_sum_fp16", "aten::sum*:accumulate_fp16:dtype=float32",
     "https://github.com/google-ai-edge/LiteRT/issues/9249"},
    {"ascend_adamw_step_plus_one", "aten::_fused_adamw*:step_plus_one",
     "https://github.com/DeepLink-org/ditorch"},
    {"mps_adam_ignores_found_inf",
     "aten::_fused_adam*:ignored:argument=found_inf;"
     "aten::_fused_adam*:ignored:argument=grad_scale",
     TORCH "pull/186360"},
    {"mlx_adamw_no_bias_correction", "aten::_fused_adamw*:step_plus_one:amount=1e6",
     "https://github.com/ml-explore/mlx/pull/1640"},
    {"mps_backward_32k", "aten::embedding_dense_backward:scale:factor=1000:more=32768",
     TORCH "issues/177116"},
    {"mps_non_blocking_copy", "sim::copy:early", TORCH "issues/189690"},
    {"rocm_stream_race", "sim::wait_stream,sim::wait_event:early",
     "https://github.com/ROCm/pytorch/issues/3194"},
    {"ds_overlap_comm", "sim::record_stream:early",
     "https://github.com/deepspeedai/DeepSpeed/issues/5545"},
    {"nccl_one_rank_avg_tail", "simccl::all_reduce:drop_tail:n=8",
     "https://github.com/NVIDIA/nccl/issues/1950"},
    {"comm_bor_becomes_sum", "simccl::all_reduce,simccl::reduce*:ranks_sum",
     "https://github.com/meta-pytorch/torchcomms/pull/2082"},
    {"sdc_transient_bit_flip", "*mm,*mm.out:bit_flip:bit=-3:p=0.01",
     "https://arxiv.org/abs/2604.00726"},
    {"faulty_motherboard", "*:nan:p=0.001:rank=1",
     "https://github.com/microsoft/dion/issues/76"},
};
#define N_BUGS (sizeof bugs / sizeof bugs[0])

bool usc_sim_bug(size_t i, const char **name, const char **faults, const char **link)
{
    if (i >= N_BUGS) return false;
    *name = bugs[i].name;
    *faults = bugs[i].faults;
    *link = bugs[i].link;
    return true;
}

static const char *bug_name(const void *ctx, size_t i)
{
    (void)ctx;
    return i < N_BUGS ? bugs[i].name : NULL;
}

usc_status fault_read_bug(span name, fault_taker *taker, usc_error *err)
{
    for (size_t i = 0; i < N_BUGS; i++)
        if (strlen(bugs[i].name) == name.n && memcmp(bugs[i].name, name.at, name.n) == 0)
            return fault_read_text(bugs[i].faults, taker, err);
    return usc_error_set(err, USC_E_ARG, -1,
                         "fault 'bug:%.*s': there is no such bug; the nearest is '%s'",
                         (int)(name.n < 60 ? name.n : 60), name.at,
                         sim_nearest(name.at, name.n, bug_name, NULL));
}
