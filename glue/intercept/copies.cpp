// SPDX-License-Identifier: Apache-2.0
// Copies that do not block: what they leave on the host stands later than the call ends.
#include "intercept.h"

#include <cassert>

namespace intercept
{

c10::Device source_of_copy(const Operator &op, const IValue *values)
{
    c10::Device source(at::kCPU);
    if (op.i_non_blocking < 0) return source;
    assert(values != nullptr &&
           static_cast<size_t>(op.i_non_blocking) < op.arguments.size());
    const IValue &non_blocking = values[op.i_non_blocking];
    if (!non_blocking.isBool() || !non_blocking.toBool()) return source;
    for (size_t i = 0; i < op.arguments.size(); ++i)
        each_tensor(values[i], [&](const at::Tensor &t) {
            if (!t.device().is_cpu() && !t.device().is_meta()) source = t.device();
        });
    return source;
}

void await_copy(c10::Device source, const Kept &written, const IValue *results, size_t n)
{
    if (source.is_cpu() || t_graph) return;
    bool here = false;
    const auto look = [&](const at::Tensor &t) { here = here || t.device().is_cpu(); };
    for (const auto &[i, value] : written)
        each_tensor(value, look);
    for (size_t i = 0; i < n; ++i)
        each_tensor(results[i], look);
    if (!here) return;
    const Aside aside;
    usc_glue::current_stream(source).synchronize();
}

} // namespace intercept
