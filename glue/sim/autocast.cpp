// SPDX-License-Identifier: Apache-2.0
// Autocast: torch's own lists of what runs in the lower precision, what in float32 and what
// in the widest dtype of its inputs; and what CUDA's refuses is refused.
#include "sim_glue.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace usc_sim
{

using namespace at;           // the macros below name torch's things unqualified
using namespace at::autocast; // as torch's own files do

namespace
{

Tensor refuse_binary_cross_entropy(const Tensor &, const Tensor &,
                                   const usc_sim::optional<Tensor> &, int64_t)
{
    TORCH_CHECK(
        false,
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to "
        "autocast.\nMany models use a sigmoid layer right before the binary cross "
        "entropy layer.\nIn this case, combine the two layers using "
        "torch.nn.functional.binary_cross_entropy_with_logits\nor "
        "torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and "
        "BCEWithLogits are\nsafe to autocast.");
}

} // namespace

c10::ScalarType autocast_dtype()
{
    const int depth = at::autocast::increment_nesting();
    const int outside = at::autocast::decrement_nesting();
    TORCH_INTERNAL_ASSERT(outside >= 0 && depth == outside + 1);
    return depth > 1 ? at::autocast::get_lower_precision_fp_from_device_type(DEVICE)
                     : c10::ScalarType::Undefined;
}

void register_autocast(torch::Library &m)
{
    m.impl("binary_cross_entropy", refuse_binary_cross_entropy);
#ifdef AT_FORALL_LOWER_PRECISION_FP // before, torch kept its lists to itself
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define FULL(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define FULL_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
    AT_FORALL_LOWER_PRECISION_FP(LOWER)
    AT_FORALL_FP32(FULL)
    AT_FORALL_FP32_SET_OPT_DTYPE(FULL_DTYPE)
#undef LOWER
#undef FULL
#undef FULL_DTYPE
#endif
#ifdef AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE
    AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(
        KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#endif
#ifdef AT_FORALL_PROMOTE
#define PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
    AT_FORALL_PROMOTE(PROMOTE)
#undef PROMOTE
#endif
}

} // namespace usc_sim
