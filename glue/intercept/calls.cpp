// SPDX-License-Identifier: Apache-2.0
// One intercepted call: what the session is told before and after it, and where in the
// user's program it stands. Neighbours: describe.cpp, composites.cpp.
#include "intercept.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/jit/frontend/tracer.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace intercept
{

thread_local int t_depth = 0;
thread_local int t_n_inner = 0;
thread_local bool t_graph = false;

namespace
{

/* ---- which forward call a backward call belongs to ---- */

struct Forward {
    int64_t module, stack;
    int64_t sequence; /* 0: not known, or the call has no node */
    int64_t api;      /* sequence of the API call around it */
};

struct ForwardCalls {
    std::mutex mutex;
    std::unordered_map<uint64_t, Forward> places;
};

ForwardCalls &forward_calls()
{
    static ForwardCalls *const instance = new ForwardCalls;
    return *instance;
}

/* Autograd numbers its nodes per thread, counting from 0. */
uint64_t node_key(uint64_t sequence_nr, uint64_t thread)
{
    return sequence_nr ^ (thread << 48);
}

/* A node is made before the forward call below it runs, so the number last given out is
 * the node's; the first call under a number is the one that belongs to it. */
void remember_forward(Where &where)
{
    const uint64_t next = at::sequence_number::peek();
    if (next == 0) return;
    const uint64_t key = node_key(next - 1, at::RecordFunction::currentThreadId());
    ForwardCalls &calls = forward_calls();
    std::lock_guard<std::mutex> lock(calls.mutex);
    const bool first =
        calls.places.try_emplace(key, Forward{where.module, where.stack, 0, 0}).second;
    if (first && at::GradMode::is_enabled()) where.key = key;
}

/* The sequence is known only when the session has taken the call's inputs. */
void number_forward(const Where &where, int64_t sequence)
{
    if (where.key == 0) return;
    ForwardCalls &calls = forward_calls();
    std::lock_guard<std::mutex> lock(calls.mutex);
    const auto found = calls.places.find(where.key);
    if (found == calls.places.end()) return;
    found->second.sequence = sequence;
    found->second.api = api_sequence();
}

template <class Node> bool find_forward(const Node &node, Where &where)
{
    ForwardCalls &calls = forward_calls();
    std::lock_guard<std::mutex> lock(calls.mutex);
    const auto found =
        calls.places.find(node_key(node->sequence_nr(), node->thread_id()));
    if (found == calls.places.end()) return false;
    where.forward = found->second.sequence;
    where.backward = backward_of(found->second.api);
    if (where.forward != 0) where.node = node->name();
    if (found->second.module == 0 && found->second.stack == 0) return false;
    where.module = found->second.module;
    where.stack = found->second.stack;
    return true;
}

/* ---- the call ---- */

/* Tracing and shape propagation run no kernels: nothing there has content. */
bool is_real(DispatchKeySet keys)
{
    return !keys.has_backend(c10::BackendComponent::MetaBit) &&
           !keys.has(DispatchKey::Functionalize) && !torch::jit::tracer::isTracing();
}

bool asks_for_meta(const Operator &op, const IValue *values)
{
    if (!op.covered) return false; /* a factory owns a BackendSelect kernel */
    for (size_t i = 0; i < op.arguments.size(); ++i)
        if (values[i].isDevice() && values[i].toDevice().is_meta()) return true;
    return false;
}

uint64_t hash_bytes(const at::Tensor &t)
{
    uint64_t hash = 0x9e3779b97f4a7c15u;
    if (!t.has_storage() || !t.device().is_cpu()) return 0;
    const auto *bytes = static_cast<const char *>(t.storage().data());
    const size_t size = bytes == nullptr ? 0 : t.storage().nbytes();
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + i, std::min<size_t>(8, size - i));
        hash = (hash ^ word) * 0xff51afd7ed558ccdu;
        hash ^= hash >> 29;
    }
    return hash;
}

/* ULPSCOPE_CAPTURE_DEBUG: finds writes that neither schema nor table tells. */
class Watchdog
{
  public:
    Watchdog(const Operator &op, const IValue *values) : op_(op)
    {
        for (size_t i = 0; i < op.arguments.size(); ++i) {
            if (op.arguments[i].written) {
                each_tensor(values[i], [&](const at::Tensor &t) { mark(t); });
                continue;
            }
            each_tensor(values[i], [&](const at::Tensor &t) {
                watched_.push_back({t, i, hash_bytes(t)});
            });
        }
    }

    void report(Session &session, int64_t sequence) const
    {
        for (const Watched &w : watched_) {
            if (hash_bytes(w.tensor) == w.hash || is_marked(w.tensor)) continue;
            const std::string text = op_.name + " wrote argument " +
                                     op_.handle.schema().arguments()[w.i_arg].name() +
                                     ", which its schema calls read-only";
            usc_capture_note(session.capture, sequence, "schema-lie", text.c_str());
        }
    }

  private:
    struct Watched {
        at::Tensor tensor;
        size_t i_arg;
        uint64_t hash;
    };
    static const void *storage_of(const at::Tensor &t)
    {
        return t.has_storage() ? t.storage().unsafeGetStorageImpl() : nullptr;
    }
    void mark(const at::Tensor &t)
    {
        written_.push_back(storage_of(t));
    }
    bool is_marked(const at::Tensor &t) const
    {
        return std::find(written_.begin(), written_.end(), storage_of(t)) !=
               written_.end();
    }

    const Operator &op_;
    std::vector<Watched> watched_;
    std::vector<const void *> written_;
};

/* What a recorded call calls in turn is of no interest to composites.cpp: not to be asked
 * about it saves more than half a microsecond each. To say so costs nearly as much, so it
 * is said for operators that do call others. A profiler of this thread still is asked. */
class Unseen
{
  public:
    explicit Unseen(Operator &op) : op_(op)
    {
        t_n_inner = 0;
        if (!at::hasThreadLocalCallbacks() && op.nests.load(std::memory_order_relaxed))
            guard_.emplace(false);
    }
    ~Unseen()
    {
        if (!guard_ && t_n_inner > 0) op_.nests.store(true, std::memory_order_relaxed);
    }
    Unseen(const Unseen &) = delete;
    Unseen &operator=(const Unseen &) = delete;

  private:
    Operator &op_;
    std::optional<at::RecordFunctionGuard> guard_;
};

/* Each thread's buffers, so that a call allocates nothing. Taken by the outermost call
 * only; recorded calls do not nest. */
struct Scratch {
    Tensors tensors;
    std::string args;
};

Scratch &scratch()
{
    thread_local Scratch instance;
    return instance;
}

void note_bare(Session &session, int64_t sequence, const Tensors &tensors)
{
    for (const usc_capture_tensor &t : tensors) {
        if (sequence == 0 || t.form == nullptr) continue;
        const std::string why = why_bare(t);
        if (!why.empty())
            usc_capture_note(session.capture, sequence, "left-out", why.c_str());
    }
}

/* JSON of what a call depends on besides its arguments, or of where it comes from. */
std::string state_of(const Operator &op, const IValue *values, const Where &where)
{
    if (op.random) return random_state(values, op.arguments.size());
    if (op.grouped) return group_state(values, op.arguments.size());
    if (where.forward == 0) return {};
    std::string name; /* of a class, which may be a template of the user's */
    for (const char c : where.node)
        if (c == '_' || c == ':' || std::isalnum(static_cast<unsigned char>(c)))
            name += c;
    return "{\"forward\": " + std::to_string(where.forward) + ", \"node\": \"" + name +
           "\"}";
}

bool is_in_graph(const Session &session, const Operator &op, const IValue *values)
{
    if (session.place.graph == nullptr) return false;
    c10::Device device(at::kCPU);
    const auto look = [&](c10::Device seen) {
        if (!seen.is_cpu() && !seen.is_meta()) device = seen;
    };
    for (size_t i = 0; i < op.arguments.size(); ++i) {
        if (values[i].isDevice()) look(values[i].toDevice());
        each_tensor(values[i], [&](const at::Tensor &t) { look(t.device()); });
    }
    return !device.is_cpu() &&
           session.place.graph(c10::DeviceTypeName(device.type(), true).c_str());
}

int64_t begin(Session &session, Operator &op, const IValue *values)
{
    Scratch &s = scratch();
    if (!write_arguments(s.args, op, values)) return 0;
    t_graph = is_in_graph(session, op, values);
    const Where where = where_now(session);
    const std::string state = state_of(op, values, where);

    usc_capture_call call = {};
    call.op = operator_id(session, op);
    call.phase = where.phase;
    call.module = where.module;
    call.stack = where.stack;
    call.thread = where.thread;
    call.parent = parent_of(session, where);
    if (call.parent == 0) call.parent = where.backward;
    call.args = s.args.c_str();
    call.state = state.empty() ? nullptr : state.c_str();
    s.tensors.clear();
    for (size_t i = 0; i < op.arguments.size(); ++i)
        describe(s.tensors, values[i], USC_ROLE_IN, static_cast<int>(i),
                 &op.arguments[i]);
    call.tensors = s.tensors.data();
    call.n_tensors = static_cast<int>(s.tensors.size());
    const int64_t sequence = usc_capture_begin(session.capture, &call);
    number_forward(where, sequence);
    note_bare(session, sequence, s.tensors);
    return sequence;
}

/* Arguments that the call writes, kept beyond the call that consumes its stack. */
std::vector<std::pair<size_t, IValue>> written_arguments(const Operator &op,
                                                         const IValue *values)
{
    std::vector<std::pair<size_t, IValue>> out;
    if (!op.writes) return out;
    for (size_t i = 0; i < op.arguments.size(); ++i)
        if (op.arguments[i].written) out.emplace_back(i, values[i]);
    return out;
}

void end(Session &session, const Operator &op, int64_t sequence,
         const std::vector<std::pair<size_t, IValue>> &written, const IValue *results)
{
    Tensors &tensors = scratch().tensors;
    tensors.clear();
    for (const auto &[i, value] : written)
        describe(tensors, value, USC_ROLE_MUTATED, static_cast<int>(i), &op.arguments[i]);
    for (size_t i = 0; i < op.n_returns; ++i)
        describe(tensors, results[i], USC_ROLE_OUT, static_cast<int>(i), nullptr);
    usc_capture_end(session.capture, sequence, tensors.data(),
                    static_cast<int>(tensors.size()), true);
    note_bare(session, sequence, tensors);
}

/* A collective is waited for: who waits for its Work may go on, and write, before
 * anything that its end sets off has run. Where nobody can tell the end, no result is
 * taken. */
void end_collective(Session &session, const Operator &op, int64_t sequence,
                    const std::vector<std::pair<size_t, IValue>> &written,
                    const IValue *results)
{
    const Ended how = await_work(results, op.n_returns, op.paired);
    if (how == Ended::standing)
        end(session, op, sequence, written, results);
    else
        usc_capture_end(session.capture, sequence, nullptr, 0, how == Ended::unknown);
    if (how == Ended::unknown && !written.empty())
        usc_capture_note(session.capture, sequence, "unseen-end",
                         "the results were not taken: nobody tells when they stand");
}

void run(const Operator &op, const OperatorHandle &handle, DispatchKeySet keys,
         Stack *stack)
{
    if (op.covered)
        op.covered(handle, keys, stack);
    else
        handle.redispatchBoxed(
            keys & DispatchKeySet(DispatchKeySet::FULL_AFTER, DispatchKey::BackendSelect),
            stack);
}

/* Does a part of the recording; false, and a note, where that throws. Nothing of ours may
 * reach the user's program. */
template <class Work> bool guarded(Session &session, const Operator &op, Work work)
{
    try {
        work();
        return true;
    } catch (const std::exception &e) {
        char text[400];
        snprintf(text, sizeof text, "a call of %.100s is left out: %.250s",
                 op.name.c_str(), e.what());
        usc_capture_note(session.capture, 0, "left-out", text);
    } catch (...) {
        usc_capture_note(session.capture, 0, "left-out", op.name.c_str());
    }
    return false;
}

void run_recorded(Session &session, Operator &op, int64_t sequence, DispatchKeySet keys,
                  Stack *stack)
{
    const size_t n = op.arguments.size();
    const IValue *values = stack->data() + (stack->size() - n);
    std::vector<std::pair<size_t, IValue>> written;
    std::optional<Watchdog> watchdog;
    const bool kept = guarded(session, op, [&] {
        written = written_arguments(op, values);
        if (session.debug) watchdog.emplace(op, values);
    });
    try {
        Inside inside;
        const Unseen unseen(op);
        run(op, op.handle, keys, stack);
    } catch (...) {
        usc_capture_end(session.capture, sequence, nullptr, 0, false);
        throw;
    }
    Inside inside;
    const bool ended = kept && guarded(session, op, [&] {
                           if (watchdog) watchdog->report(session, sequence);
                           const IValue *results =
                               stack->data() + (stack->size() - op.n_returns);
                           if (op.collective)
                               end_collective(session, op, sequence, written, results);
                           else
                               end(session, op, sequence, written, results);
                       });
    if (!ended) usc_capture_end(session.capture, sequence, nullptr, 0, true);
}

} // namespace

int64_t thread_number()
{
    static std::atomic<int64_t> n_threads{0};
    thread_local const int64_t number = ++n_threads;
    return number;
}

void forget_forward_calls()
{
    forget_backward();
    ForwardCalls &calls = forward_calls();
    std::lock_guard<std::mutex> lock(calls.mutex);
    calls.places.clear();
}

bool in_backward()
{
    return torch::autograd::get_current_node() != nullptr;
}

Where where_now(Session &session)
{
    Where where = {USC_PHASE_FORWARD, 0, 0, thread_number(), 0, 0, 0, {}};
    const auto node = torch::autograd::get_current_node();
    if (node) {
        where.phase = USC_PHASE_BACKWARD;
        /* A module that was entered since is the place, not the node that wants it run
         * (gradient checkpointing). */
        where.module = session.place.module(true);
        if (where.module == 0 && find_forward(node, where)) return where;
    } else if (session.place.optimizer()) {
        where.phase = USC_PHASE_OPTIMIZER;
        where.stack = session.place.stack(session.capture);
        return where;
    }
    if (where.module == 0) where.module = session.place.module(false);
    where.stack = session.place.stack(session.capture);
    if (!node || at::GradMode::is_enabled()) remember_forward(where);
    return where;
}

void Kernel::operator()(const OperatorHandle &handle, DispatchKeySet keys, Stack *stack)
{
    if (t_depth != 0 || !is_real(keys)) return run(*op_, handle, keys, stack);
    adopt_new_operators();
    Use use;
    if (use) meet_thread(*use.get());
    const IValue *values = stack->data() + (stack->size() - op_->arguments.size());
    if (!use || !(op_->selected || parent_selected()) || asks_for_meta(*op_, values))
        return run(*op_, handle, keys, stack);
    if (!use->aten) {
        guarded(*use.get(), *op_, [&] { note_api(*use.get()); });
        return run(*op_, handle, keys, stack);
    }
    int64_t sequence = 0;
    {
        Inside inside;
        guarded(*use.get(), *op_, [&] { sequence = begin(*use.get(), *op_, values); });
    }
    if (sequence == 0) return run(*op_, handle, keys, stack);
    run_recorded(*use.get(), *op_, sequence, keys, stack);
}

} // namespace intercept
