// SPDX-License-Identifier: Apache-2.0
// Autocast: torch's own lists of what runs in the lower precision and what in float32.
#include "sim_glue.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace usc_sim
{

using namespace at;           // the macros below name torch's things unqualified
using namespace at::autocast; // as torch's own files do

void register_autocast(torch::Library &m)
{
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
#else
    (void)m;
#endif
}

} // namespace usc_sim
