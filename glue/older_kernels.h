// SPDX-License-Identifier: Apache-2.0
// The kernel that the dispatcher has for an operator, whether or not this torch's handles
// hand it out; asked for by feature, as all of older.h.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace usc_glue
{

namespace older
{

/* The table of an operator's kernels is private where its handle does not hand them out.
 * An explicit instantiation may name what is private. */
struct Table {
    friend auto table_of(Table);
};
template <auto Member> struct Opened {
    friend auto table_of(Table)
    {
        return Member;
    }
};
template struct Opened<&c10::OperatorHandle::operatorDef_>;

template <typename Handle>
auto kernel_at(const Handle &op, c10::DispatchKey key, int)
    -> decltype(op.getComputedKernelForDispatchKey(key))
{
    return op.getComputedKernelForDispatchKey(key);
}

template <typename Handle>
c10::KernelFunction kernel_at(const Handle &op, c10::DispatchKey key, long)
{
    return (op.*table_of(Table{}))->op.lookup(c10::DispatchKeySet(key));
}

} // namespace older

} // namespace usc_glue
