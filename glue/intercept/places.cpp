// SPDX-License-Identifier: Apache-2.0
// Where in the user's program a call stands: thread, module, stack, phase, and which forward
// call a backward call belongs to. Neighbours: calls.cpp, apis_backward.cpp.
#include "intercept.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

namespace intercept
{

namespace
{

/* Autograd numbers its nodes per thread, counting from 0. */
uint64_t node_key(uint64_t sequence_nr, uint64_t thread)
{
    return sequence_nr ^ (thread << 48);
}

/* A node is made before the forward call below it runs, so the number last given out is
 * the node's; the first call under a number is the one that belongs to it. */
void remember_forward(Session &session, Where &where)
{
    const uint64_t next = at::sequence_number::peek();
    if (next == 0) return;
    const uint64_t key = node_key(next - 1, at::RecordFunction::currentThreadId());
    std::lock_guard<std::mutex> lock(session.mutex);
    const bool first =
        session.forward_calls.try_emplace(key, Forward{where.module, where.stack, 0, 0})
            .second;
    if (first && at::GradMode::is_enabled()) where.key = key;
}

template <class Node> bool find_forward(Session &session, const Node &node, Where &where)
{
    std::lock_guard<std::mutex> lock(session.mutex);
    const auto found =
        session.forward_calls.find(node_key(node->sequence_nr(), node->thread_id()));
    if (found == session.forward_calls.end()) return false;
    where.forward = found->second.sequence;
    where.backward = backward_of(session, found->second.api);
    if (where.forward != 0) where.node = node->name();
    if (found->second.module == 0 && found->second.stack == 0) return false;
    where.module = found->second.module;
    where.stack = found->second.stack;
    return true;
}

} // namespace

void number_forward(Session &session, const Where &where, int64_t sequence)
{
    if (where.key == 0) return;
    std::lock_guard<std::mutex> lock(session.mutex);
    const auto found = session.forward_calls.find(where.key);
    if (found == session.forward_calls.end()) return;
    found->second.sequence = sequence;
    found->second.api = api_sequence(session);
}

int64_t thread_number()
{
    static std::atomic<int64_t> n_threads{0};
    thread_local const int64_t number = ++n_threads;
    return number;
}

void forget_forward_calls(Session &session)
{
    std::lock_guard<std::mutex> lock(session.mutex);
    session.forward_calls.clear();
    session.backward_calls.clear();
}

bool in_backward()
{
    return torch::autograd::get_current_node() != nullptr;
}

Where where_now(Session &session)
{
    TORCH_INTERNAL_ASSERT(session.place.module != nullptr &&
                          session.place.stack != nullptr &&
                          session.place.optimizer != nullptr);
    Where where = {USC_PHASE_FORWARD, 0, 0, thread_number(), 0, 0, 0, {}};
    const auto node = torch::autograd::get_current_node();
    if (node) {
        where.phase = USC_PHASE_BACKWARD;
        /* A module that was entered since is the place, not the node that wants it run
         * (gradient checkpointing). */
        where.module = session.place.module(session.capture, true);
        if (where.module == 0 && find_forward(session, node, where)) return where;
    } else if (session.place.optimizer()) {
        where.phase = USC_PHASE_OPTIMIZER;
        where.stack = session.place.stack(session.capture);
        return where;
    }
    if (where.module == 0) where.module = session.place.module(session.capture, false);
    where.stack = session.place.stack(session.capture);
    if (!node || at::GradMode::is_enabled()) remember_forward(session, where);
    return where;
}

bool in_scope(Session &session, const Where &where)
{
    if (session.modules.empty()) return true;
    std::lock_guard<std::mutex> lock(session.mutex);
    const auto found = session.in_modules.find(where.module);
    return found != session.in_modules.end() && found->second;
}

} // namespace intercept
