// SPDX-License-Identifier: Apache-2.0
// Collectives: what their objects say, and when their results stand (when the Work among
// them has completed).
// A torch without c10d has none of these operators.
#include "../torch_private_ranks.h"
#include "intercept.h"

#include <ATen/core/ivalue.h>

#include <chrono>
#include <future>

namespace intercept
{

#ifdef USC_GLUE_KNOWS_RANKS
namespace
{

/* Ranks may come late; those that issue collectives of several groups in different
 * orders, or between whose collectives another one stands, never meet while each waits
 * for the other. Halved each time it was in vain, so that all of that costs 10 seconds at
 * most. */
std::atomic<int64_t> patience_ms{5000};

/* The c10d object of class T inside a value; null where it holds another. */
template <typename T> c10::intrusive_ptr<T> as(const IValue &value)
{
    try {
        return value.isCustomClass() ? value.toCustomClass<T>() : c10::intrusive_ptr<T>();
    } catch (const std::exception &) {
        return {};
    }
}

/* The Work among the results; null where there is none. */
c10::intrusive_ptr<c10d::Work> work_among(const IValue *results, size_t n)
{
    for (size_t i = 0; i < n; ++i)
        if (const auto work = as<c10d::Work>(results[i])) return work;
    return {};
}

/* Null where this backend's Work has none: gloo's reduce_scatter writes in wait(). */
c10::intrusive_ptr<c10::ivalue::Future> future_of(c10d::Work &work)
{
    try {
        return work.getFuture();
    } catch (const std::exception &) {
        return {};
    }
}

const char *name_of(const c10d::ReduceOp &op)
{
    static constexpr const char *names[] = {"sum",  "avg", "product", "min",       "max",
                                            "band", "bor", "bxor",    "premul_sum"};
    const size_t i = static_cast<size_t>(op.op_);
    return i < sizeof names / sizeof *names ? names[i] : "unused";
}

/* ---- what older torch has otherwise, asked for by feature ---- */

/* Without waiting for streams in the callback, where torch can be told so. */
template <typename Future, typename Callback>
auto when_over(Future &future, Callback callback, int)
    -> decltype(future.addCallback(callback, /*uses_future=*/false))
{
    future.addCallback(callback, false);
}

template <typename Future, typename Callback>
void when_over(Future &future, Callback callback, long)
{
    future.addCallback(callback);
}

template <typename Group>
auto group_name(const Group &group, int) -> decltype(std::string(group.getGroupName()))
{
    return group.getGroupName();
}

template <typename Group> std::string group_name(const Group &, long)
{
    return "";
}

} // namespace
#endif

std::string describe_object(const IValue &value)
{
#ifdef USC_GLUE_KNOWS_RANKS
    try {
        if (const auto op = as<c10d::ReduceOp>(value))
            return std::string("ReduceOp ") + name_of(*op);
        if (const auto group = as<c10d::ProcessGroup>(value))
            return "ProcessGroup " + group_name(*group, 0) + " rank " +
                   std::to_string(group->getRank()) + " of " +
                   std::to_string(group->getSize());
    } catch (const std::exception &) { /* a group without a name or a backend */
    }
#endif
    return value.tagKind();
}

std::string group_state(const IValue *values, size_t n)
{
#ifdef USC_GLUE_KNOWS_GROUP_NAMES
    try {
        while (n > 0 && !values[n - 1].isString())
            --n;
        if (n == 0) return {};
        const std::string &name = values[n - 1].toStringRef();
        const auto group = c10d::resolve_process_group(name);
        return "{\"group\": {\"name\": \"" + name +
               "\", \"rank\": " + std::to_string(group->getRank()) +
               ", \"size\": " + std::to_string(group->getSize()) + "}}";
    } catch (const std::exception &) { /* no group of that name */
    }
#else
    (void)values;
    (void)n;
#endif
    return {};
}

Ended await_work(const IValue *results, size_t n, bool paired)
{
    TORCH_INTERNAL_ASSERT(results != nullptr || n == 0);
#ifdef USC_GLUE_KNOWS_RANKS
    const auto work = work_among(results, n);
    if (!work) return Ended::standing;
    const auto future = paired ? nullptr : future_of(*work);
    if (!future) return Ended::unknown;
    const auto over = std::make_shared<std::promise<void>>();
    when_over(
        *future, [over](c10::ivalue::Future &) { over->set_value(); }, 0);
    const std::chrono::milliseconds patience(patience_ms.load());
    if (over->get_future().wait_for(patience) != std::future_status::ready) {
        patience_ms = patience.count() / 2;
        return Ended::unknown;
    }
    future->wait(); /* this thread's streams come after those of the work */
    return future->hasError() ? Ended::failed : Ended::standing;
#else
    (void)results;
    (void)n;
    (void)paired;
    return Ended::standing;
#endif
}

} // namespace intercept
