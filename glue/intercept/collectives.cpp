// SPDX-License-Identifier: Apache-2.0
// Asynchronous collectives: their results stand when the Work among them has completed.
// A torch without c10d has none of these operators.
#include "intercept.h"

#include <ATen/core/ivalue.h>

#if defined(USE_DISTRIBUTED) || __has_include(<torch/csrc/distributed/c10d/Work.hpp>)
#include <torch/csrc/distributed/c10d/Work.hpp>
#define HAS_C10D 1
#endif

namespace intercept
{

#ifdef HAS_C10D
namespace
{

c10::intrusive_ptr<c10::ivalue::Future> future_of(const IValue &value)
{
    if (!value.isCustomClass()) return {};
    try {
        const auto work =
            c10::dynamic_intrusive_pointer_cast<c10d::Work>(value.toCapsule());
        return work ? work->getFuture() : c10::intrusive_ptr<c10::ivalue::Future>();
    } catch (const std::exception &) {
        return {}; /* this backend's Work has no future: the results are taken as they are
                    */
    }
}

} // namespace
#endif

void when_complete(const IValue *results, size_t n, std::function<void(bool ok)> done)
{
#ifdef HAS_C10D
    for (size_t i = 0; i < n; ++i) {
        const auto future = future_of(results[i]);
        if (!future) continue;
        future->addCallback(
            [done = std::move(done)](c10::ivalue::Future &f) { done(!f.hasError()); },
            /*uses_future=*/false);
        return;
    }
#else
    (void)results;
    (void)n;
#endif
    done(true);
}

} // namespace intercept
