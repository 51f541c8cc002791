// SPDX-License-Identifier: Apache-2.0
// What older torch (from 2.1 on) has under other names or not at all, asked for by
// feature: where torch has the function, an overload of its own is the better match.
#pragma once

#include "../older.h"
#include "../torch_private.h"

#include <c10/core/Event.h>
#include <torch/csrc/api/include/torch/version.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

namespace intercept
{

using usc_glue::dtype_names;
using usc_glue::runs_at;

/* ---- kernels of the dispatcher ---- */

using BoxedCall = std::function<void(const c10::OperatorHandle &, c10::DispatchKeySet,
                                     torch::jit::Stack *)>;

/** What an operator runs at a key; there has to be something. */
inline BoxedCall kernel_at(const c10::OperatorHandle &op, c10::DispatchKey key)
{
    auto kernel = usc_glue::kernel_at(op, key);
    return [kernel](const c10::OperatorHandle &handle, c10::DispatchKeySet keys,
                    torch::jit::Stack *stack) { kernel.callBoxed(handle, keys, stack); };
}

/* ---- events, works ---- */

namespace older
{

template <typename Event>
auto wait_for(const Event &event, int) -> decltype(event.synchronize())
{
    event.synchronize();
}

template <typename Event> void wait_for(const Event &event, long)
{
    while (!event.query())
        std::this_thread::sleep_for(std::chrono::microseconds(50));
}

template <typename Event>
auto milliseconds(const Event &begin, const Event &end, int)
    -> decltype(begin.elapsedTime(end))
{
    return begin.elapsedTime(end);
}

template <typename Event> double milliseconds(const Event &, const Event &, long)
{
    TORCH_CHECK(false, "events of this torch have no times");
}

template <typename Work>
auto sequence_of(const Work &work, int) -> decltype(work.getSequencenumber())
{
    return work.getSequencenumber();
}

template <typename Work> uint64_t sequence_of(const Work &, long)
{
    return 0;
}

} // namespace older

} // namespace intercept
