// SPDX-License-Identifier: Apache-2.0
// The outermost composite call (linear, scaled_dot_product_attention) becomes the parent
// of the calls below it, and has the API call around it as its own (apis.cpp). A
// RecordFunction callback sees it above autocast; its row is written when the first call
// below it is, so that views and size queries leave none.
#include "intercept.h"

#include <ATen/record_function.h>

#include <mutex>

namespace intercept
{

namespace
{

struct Pending : at::ObserverContext {
    explicit Pending(Operator *of) : op(of)
    {
    }
    ~Pending() override;

    Operator *op;
    std::vector<IValue> inputs;
    std::string autocast;
    /* In each session, by slot; sequence 0: no row yet. */
    std::array<int64_t, MOST_SESSIONS> sequence{}, serial{};
};

thread_local Pending *t_pending = nullptr;

Pending::~Pending()
{
    if (t_pending == this) t_pending = nullptr;
}

std::unique_ptr<at::ObserverContext> at_start(const at::RecordFunction &f)
{
    const bool inside = (attached() & ~t_inside) == 0 || usc_is_aside();
    if (inside) ++t_n_inner;
    if (inside || t_pending != nullptr) return nullptr;
    Operator *op = composite_by_name(f.name());
    if (op == nullptr) return nullptr;
    try {
        adopt_new_operators();
        auto pending = std::make_unique<Pending>(op);
        const auto inputs = f.inputs();
        if (inputs.size() != op->arguments.size()) return nullptr;
        pending->inputs.assign(inputs.begin(), inputs.end());
        pending->autocast = autocast_state();
        t_pending = pending.get();
        return pending;
    } catch (...) {
        return nullptr; /* nothing of ours may reach the user's program */
    }
}

void describe_end(Tensors &tensors, const Pending &pending,
                  const std::vector<IValue> &outputs)
{
    const Operator &op = *pending.op;
    for (size_t i = 0; i < pending.inputs.size(); ++i)
        if (op.arguments[i].written)
            describe(tensors, pending.inputs[i], USC_ROLE_MUTATED, static_cast<int>(i),
                     &op.arguments[i]);
    for (size_t i = 0; i < outputs.size(); ++i)
        describe(tensors, outputs[i], USC_ROLE_OUT, static_cast<int>(i), nullptr);
}

void at_end(const at::RecordFunction &f, at::ObserverContext *context)
{
    auto *pending = static_cast<Pending *>(context);
    if (pending == nullptr) return;
    if (t_pending == pending) t_pending = nullptr;
    Slots begun = 0;
    for (int i = 0; i < MOST_SESSIONS; ++i)
        if (pending->sequence[static_cast<size_t>(i)] != 0) begun |= bit(i);
    if (begun == 0) return;
    Inside inside;
    const Use use(begun);
    Tensors tensors;
    bool ok = true;
    try {
        describe_end(tensors, *pending, f.outputs());
        ok = f.outputs().size() == pending->op->n_returns;
    } catch (...) {
        tensors.clear();
    }
    each_slot(use.slots(), [&](int i) {
        const auto slot = static_cast<size_t>(i);
        look_past(use[i], tensors);
        if (use[i].serial == pending->serial[slot])
            usc_capture_end(use[i].capture, pending->sequence[slot], tensors.data(),
                            static_cast<int>(tensors.size()), ok);
    });
}

int64_t write_row(Session &session, const Pending &pending, const Where &where)
{
    TORCH_INTERNAL_ASSERT(pending.op != nullptr &&
                          pending.inputs.size() == pending.op->arguments.size());
    Operator &op = *pending.op;
    Arguments args;
    if (!write_arguments(args, op, pending.inputs.data())) return 0;
    Tensors tensors;
    for (size_t i = 0; i < pending.inputs.size(); ++i)
        describe(tensors, pending.inputs[i], USC_ROLE_IN, static_cast<int>(i),
                 &op.arguments[i]);
    look_past(session, tensors);
    usc_capture_call call = {};
    call.op = operator_id(session, op);
    call.phase = where.phase;
    call.module = where.module;
    call.stack = where.stack;
    call.thread = where.thread;
    call.parent = api_of(session, where);
    if (call.parent == 0) call.parent = where.backward;
    call.args = args.text;
    call.state = pending.autocast.empty() ? nullptr : pending.autocast.c_str();
    call.composite = true;
    call.tensors = tensors.data();
    call.n_tensors = static_cast<int>(tensors.size());
    return usc_capture_begin(session.capture, &call);
}

std::mutex g_mutex;
std::optional<at::CallbackHandle> g_handle;

} // namespace

void watch_composites(bool on)
{
    std::lock_guard<std::mutex> lock(g_mutex);
    if (on && !g_handle) {
        g_handle = at::addGlobalCallback(at::RecordFunctionCallback(at_start, at_end)
                                             .needsInputs(true)
                                             .needsOutputs(true)
                                             .scopes({at::RecordScope::FUNCTION}));
    } else if (!on && g_handle) {
        at::removeCallback(*g_handle);
        g_handle.reset();
    }
}

int64_t parent_of(Session &session, const Where &where)
{
    Pending *pending = t_pending;
    if (pending == nullptr) return api_of(session, where);
    const auto slot = static_cast<size_t>(session.slot);
    if (pending->serial[slot] != session.serial) {
        pending->serial[slot] = session.serial;
        pending->sequence[slot] = write_row(session, *pending, where);
    }
    return pending->sequence[slot];
}

Slots parent_selected()
{
    return (t_pending != nullptr ? t_pending->op->selected.load() : 0) | api_selected();
}

} // namespace intercept
