// SPDX-License-Identifier: Apache-2.0
// One intercepted call: what the session is told before and after it.
// Neighbours: describe.cpp, places.cpp, composites.cpp.
#include "intercept.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <sys/syscall.h>
#include <unistd.h>

namespace intercept
{

thread_local Slots t_inside = 0;
thread_local int t_n_inner = 0;
thread_local bool t_graph = false;

namespace
{

/* Tracing and shape propagation run no kernels: nothing there has content. */
bool is_real(DispatchKeySet keys)
{
    return !keys.has_backend(c10::BackendComponent::MetaBit) &&
           !keys.has(DispatchKey::Functionalize) &&
           !usc_glue::includes_key(DispatchKey::Tracer);
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
        const bool nobody = (attached() & ~t_inside) == 0;
        if (nobody && !at::hasThreadLocalCallbacks() &&
            op.nests.load(std::memory_order_relaxed))
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
    Arguments args;
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

/* What the call comes to in one session; 0: it does not record it. */
int64_t begin_in(Session &session, Operator &op, const IValue *values, Scratch &s)
{
    const Where where = where_now(session);
    if (!in_scope(session, where)) return 0;
    const std::string state = state_of(op, values, where);
    look_at(session, s.tensors, s.tensors.size());

    usc_capture_call call = {};
    call.op = operator_id(session, op);
    call.phase = where.phase;
    call.module = where.module;
    call.stack = where.stack;
    call.thread = where.thread;
    call.parent = parent_of(session, where);
    if (call.parent == 0) call.parent = where.backward;
    call.args = s.args.text;
    call.state = state.empty() ? nullptr : state.c_str();
    call.tensors = s.tensors.data();
    call.n_tensors = static_cast<int>(s.tensors.size());
    const int64_t sequence = usc_capture_begin(session.capture, &call);
    number_forward(session, where, sequence);
    note_bare(session, sequence, s.tensors);
    return sequence;
}

/* The sequence of a call in each session, by slot; 0: not recorded there. */
using Sequences = std::array<int64_t, MOST_SESSIONS>;

/* Begins a call in these sessions; gives those that record it. */
Slots begin(const Use &use, Slots wanted, Operator &op, const IValue *values,
            Sequences &sequences)
{
    Scratch &s = scratch();
    if (!write_arguments(s.args, op, values)) return 0;
    each_slot(wanted, [&](int i) { t_graph = is_in_graph(use[i], op, values); });
    s.tensors.clear();
    for (size_t i = 0; i < op.arguments.size(); ++i)
        describe(s.tensors, values[i], USC_ROLE_IN, static_cast<int>(i),
                 &op.arguments[i]);
    Slots taken = 0;
    each_slot(wanted, [&](int i) {
        const auto slot = static_cast<size_t>(i);
        sequences[slot] = begin_in(use[i], op, values, s);
        if (sequences[slot] != 0) taken |= bit(i);
    });
    return taken;
}

Kept written_arguments(const Operator &op, const IValue *values)
{
    Kept out;
    if (!op.writes) return out;
    for (size_t i = 0; i < op.arguments.size(); ++i)
        if (op.arguments[i].written) out.emplace_back(i, values[i]);
    return out;
}

bool has_tensor(const IValue &value)
{
    bool found = false;
    each_tensor(value, [&](const at::Tensor &) { found = true; });
    return found;
}

/* Arguments that it only reads, as its schema says. What makes a view reads nothing, and
 * of a collective nobody here can tell when its arguments are at rest. */
Kept read_arguments(const Operator &op, const IValue *values)
{
    Kept out;
    if (op.views || op.collective || op.paired || op.grouped) return out;
    for (size_t i = 0; i < op.arguments.size(); ++i)
        if (!op.arguments[i].written && has_tensor(values[i]))
            out.emplace_back(i, values[i]);
    return out;
}

/* A call that is over, in the sessions that record it. */
struct Taken {
    const Use &use;
    Slots slots;
    const Sequences &sequences;

    int64_t sequence(int slot) const
    {
        return sequences[static_cast<size_t>(slot)];
    }
    void end_bare(bool ok) const
    {
        each_slot(slots, [&](int i) {
            usc_capture_end(use[i].capture, sequence(i), nullptr, 0, ok);
        });
    }
};

/* Appends what was only to be read, but for memory that the call may write through
 * another argument. */
void describe_read(Tensors &tensors, const Operator &op, const Kept &read)
{
    std::vector<const void *> may;
    for (const usc_capture_tensor &t : tensors)
        if (t.role == USC_ROLE_MUTATED) may.push_back(t.storage);
    const size_t before = tensors.size();
    for (const auto &[i, value] : read)
        describe(tensors, value, USC_ROLE_MUTATED, static_cast<int>(i), &op.arguments[i],
                 USC_MAYBE_STRAY);
    const auto from = tensors.begin() + static_cast<std::ptrdiff_t>(before);
    const auto none = [&](const usc_capture_tensor &t) {
        return t.storage == nullptr ||
               std::find(may.begin(), may.end(), t.storage) != may.end();
    };
    tensors.erase(std::remove_if(from, tensors.end(), none), tensors.end());
}

void end(const Taken &taken, const Operator &op, const Kept &written, const Kept &read,
         const IValue *results)
{
    Tensors &tensors = scratch().tensors;
    tensors.clear();
    for (const auto &[i, value] : written)
        describe(tensors, value, USC_ROLE_MUTATED, static_cast<int>(i), &op.arguments[i]);
    for (size_t i = 0; i < op.n_returns; ++i)
        describe(tensors, results[i], USC_ROLE_OUT, static_cast<int>(i), nullptr);
    const size_t n_told = tensors.size();
    describe_read(tensors, op, read);
    each_slot(taken.slots, [&](int i) {
        const size_t n = taken.use[i].reads ? tensors.size() : n_told;
        look_at(taken.use[i], tensors, n, op.views);
        usc_capture_end(taken.use[i].capture, taken.sequence(i), tensors.data(),
                        static_cast<int>(n), true);
    });
    tensors.resize(n_told);
    each_slot(taken.slots,
              [&](int i) { note_bare(taken.use[i], taken.sequence(i), tensors); });
}

/* A collective is waited for: who waits for its Work may go on, and write, before
 * anything that its end sets off has run. Where nobody can tell the end, no result is
 * taken. */
void end_collective(const Taken &taken, const Operator &op, const Kept &written,
                    const IValue *results)
{
    const Ended how = await_work(results, op.n_returns, op.paired);
    if (how == Ended::standing)
        end(taken, op, written, {}, results);
    else
        taken.end_bare(how == Ended::unknown);
    if (how == Ended::unknown && !written.empty())
        each_slot(taken.slots, [&](int i) {
            usc_capture_note(taken.use[i].capture, taken.sequence(i), "unseen-end",
                             "the results were not taken: nobody tells when they stand");
        });
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
template <class Work>
bool guarded(const Use &use, Slots slots, const Operator &op, Work work)
{
    char text[400];
    try {
        work();
        return true;
    } catch (const std::exception &e) {
        snprintf(text, sizeof text, "a call of %.100s is left out: %.250s",
                 op.name.c_str(), e.what());
    } catch (...) {
        snprintf(text, sizeof text, "%.300s", op.name.c_str());
    }
    each_slot(slots,
              [&](int i) { usc_capture_note(use[i].capture, 0, "left-out", text); });
    return false;
}

void run_recorded(Taken taken, Operator &op, DispatchKeySet keys, Stack *stack)
{
    const size_t n = op.arguments.size();
    TORCH_INTERNAL_ASSERT(stack != nullptr && stack->size() >= n);
    const IValue *values = stack->data() + (stack->size() - n);
    Kept written, read;
    std::optional<Watchdog> watchdog;
    const c10::Device source = source_of_copy(op, values);
    Slots debug = 0;
    bool reads = false;
    each_slot(taken.slots, [&](int i) {
        debug |= taken.use[i].debug ? bit(i) : 0;
        reads |= taken.use[i].reads;
    });
    const bool kept = guarded(taken.use, taken.slots, op, [&] {
        written = written_arguments(op, values);
        if (reads) read = read_arguments(op, values);
        if (debug != 0) watchdog.emplace(op, values);
    });
    try {
        Inside inside(taken.slots);
        const Unseen unseen(op);
        run(op, op.handle, keys, stack);
    } catch (...) {
        taken.slots = taken.use.still(taken.slots);
        taken.end_bare(false);
        throw;
    }
    taken.slots = taken.use.still(taken.slots);
    debug &= taken.slots;
    Inside inside;
    const bool ended =
        kept && guarded(taken.use, taken.slots, op, [&] {
            each_slot(debug,
                      [&](int i) { watchdog->report(taken.use[i], taken.sequence(i)); });
            const IValue *results = stack->data() + (stack->size() - op.n_returns);
            await_copy(source, written, results, op.n_returns);
            if (op.collective)
                end_collective(taken, op, written, results);
            else
                end(taken, op, written, read, results);
        });
    if (!ended) taken.end_bare(true);
}

/* Native number of this thread. */
int64_t native_thread()
{
    thread_local const auto number = static_cast<int64_t>(::syscall(SYS_gettid));
    return number;
}

/* Those sessions that watch this thread and what is called. */
Slots asked_for(const Use &use, const Operator &op)
{
    Slots wanted = use.slots() & (op.selected.load() | parent_selected());
    each_slot(wanted, [&](int i) {
        const std::vector<int64_t> &only = use[i].threads;
        if (!only.empty() &&
            std::find(only.begin(), only.end(), native_thread()) == only.end())
            wanted &= ~bit(i);
    });
    return wanted;
}

} // namespace

void Kernel::operator()(const OperatorHandle &handle, DispatchKeySet keys, Stack *stack)
{
    const Slots open = attached() & ~t_inside;
    if (open == 0 || usc_is_aside() || !is_real(keys))
        return run(*op_, handle, keys, stack);
    adopt_new_operators();
    const Use use(open);
    each_slot(use.slots(), [&](int i) { meet_thread(use[i]); });
    const IValue *values = stack->data() + (stack->size() - op_->arguments.size());
    Slots wanted = asked_for(use, *op_);
    if (wanted == 0 || asks_for_meta(*op_, values)) return run(*op_, handle, keys, stack);
    each_slot(wanted, [&](int i) {
        if (use[i].aten) return;
        guarded(use, bit(i), *op_, [&] { note_api(use[i]); });
        wanted &= ~bit(i);
    });
    Sequences sequences = {};
    Slots taken = 0;
    if (wanted != 0) {
        Inside inside;
        guarded(use, wanted, *op_,
                [&] { taken = begin(use, wanted, *op_, values, sequences); });
    }
    if (taken == 0) return run(*op_, handle, keys, stack);
    run_recorded({use, taken, sequences}, *op_, keys, stack);
}

} // namespace intercept
