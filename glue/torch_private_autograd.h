// SPDX-License-Identifier: Apache-2.0
// What of autograd has private names (torch_private.h says how each is asked for).
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace usc_glue::way_on::autograd
{

template <class Leaf> auto try_get_grad_accumulator(const Leaf &leaf)
{
    using Meta = torch::autograd::AutogradMeta;
    const auto *meta =
        static_cast<const Meta *>(leaf.unsafeGetTensorImpl()->autograd_meta());
    return meta != nullptr ? meta->grad_accumulator_.lock()
                           : decltype(meta->grad_accumulator_.lock()){};
}

} // namespace usc_glue::way_on::autograd

namespace torch::autograd::impl
{
using namespace usc_glue::way_on::autograd;
}

namespace usc_glue
{

/** The node that sums a leaf's gradients; null where nothing has asked for it yet. */
inline torch::autograd::Node *grad_accumulator_of(const at::Tensor &leaf)
{
    return torch::autograd::impl::try_get_grad_accumulator(leaf).get();
}

} // namespace usc_glue
