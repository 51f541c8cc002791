// SPDX-License-Identifier: Apache-2.0
// Which attention torch takes on a device: the names of that choice are private. Without
// them, as before a device could have one of its own, it is torch's formula.
#pragma once

#if __has_include(<ATen/ops/_scaled_dot_product_fused_attention_overrideable.h>) &&      \
    __has_include(<ATen/native/transformers/sdp_utils_cpp.h>)
#define USC_GLUE_CHOOSES_ATTENTION 1

#include <ATen/native/transformers/attention.h>
#include <ATen/native/transformers/sdp_utils_cpp.h>

namespace usc_glue::way_on::attention
{

struct Unasked {
    template <class Choose> void set_privateuse1_dispatch_ptr(Choose)
    {
    }
};
inline Unasked _fused_sdp_choice_stub;

} // namespace usc_glue::way_on::attention

namespace at::native
{
using namespace usc_glue::way_on::attention;
}

namespace usc_glue
{

constexpr auto ATTENTION_OF_ITS_OWN = static_cast<int64_t>(sdp::SDPBackend::overrideable);
constexpr auto ATTENTION_BY_FORMULA = static_cast<int64_t>(sdp::SDPBackend::math);

/** What chooses between these two for each call on the device. */
template <class Choose> void register_attention_choice(Choose choose)
{
    at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(choose);
}

} // namespace usc_glue

#endif
