// SPDX-License-Identifier: Apache-2.0
// Calls of Python functions (torch.nn.functional.linear, Tensor.add) as parents of the
// composite calls and operators below them. The extension says when one begins and ends
// (python/ext/py_api.c); its row is written when the first call below it is, so that
// reading a shape leaves none.
#include "intercept.h"

#include <ATen/SequenceNumber.h>
#include <ATen/core/grad_mode.h>

#include <deque>

/* Only to compile for: what a PyObject of torch.Tensor looks like. */
#if __has_include(<Python.h>)
#include <torch/csrc/autograd/python_variable.h>
#define USC_KNOWS_PYTHON true
#else
#define USC_KNOWS_PYTHON false
#endif

namespace intercept
{

namespace
{

/* By slot: */
thread_local usc_intercept_api *t_api[MOST_SESSIONS] = {};
thread_local int64_t t_met[MOST_SESSIONS] = {}; /* serial of the session */
thread_local Slots t_selected = 0;

/* Of the call that api_add is for. */
thread_local int t_slot = 0;

/* What is known of the API call whose row is being written, or ended, on this thread. */
struct Row {
    Tensors tensors;
    std::deque<std::string> paths; /* a deque: its texts stay where they are */
    std::string autocast;          /* as the call began */
    ApiForward forward;            /* of the row that was written last */
    std::vector<ApiInput> inputs, parameters;
    std::vector<const at::Tensor *> outputs;
    /* tensors that were given, and the nodes of autograd that they came from */
    std::vector<std::pair<const at::Tensor *, torch::autograd::Node *>> given;

    void clear()
    {
        tensors.clear();
        paths.clear();
    }
};

Row &row(int slot)
{
    TORCH_INTERNAL_ASSERT(slot >= 0 && slot < MOST_SESSIONS);
    thread_local Row instances[MOST_SESSIONS];
    return instances[slot];
}

int64_t write_row(Session &session, usc_intercept_api &api, const Where &where)
{
    Row &r = row(session.slot);
    t_slot = session.slot;
    r.clear();
    r.inputs.clear();
    r.given.clear();
    const char *args = session.place.describe(&api);
    if (args == nullptr) return 0;
    look_at(session, r.tensors, r.tensors.size());
    usc_capture_call call = {};
    call.op = api.op;
    call.phase = where.phase;
    call.module = where.module;
    call.stack = where.stack;
    call.thread = where.thread;
    call.args = args;
    call.state = r.autocast.empty() ? nullptr : r.autocast.c_str();
    call.composite = true;
    call.tensors = r.tensors.data();
    call.n_tensors = static_cast<int>(r.tensors.size());
    const int64_t sequence = usc_capture_begin(session.capture, &call);
    r.forward.slot = session.slot;
    r.forward.serial = session.serial;
    r.forward.op = api.op;
    r.forward.sequence = sequence;
    r.forward.module = where.module;
    r.forward.stack = where.stack;
    r.clear();
    return sequence;
}

} // namespace

/* Not from inside a backward pass, whose state of the thread is another's. */
void meet_thread(const Session &session)
{
    int64_t &met = t_met[session.slot];
    if (session.place.meet == nullptr || met == session.serial || in_backward()) return;
    met = session.serial;
    if (t_api[session.slot] != nullptr) return; /* they are seen */
    Inside inside;
    session.place.meet();
}

int64_t api_of(Session &session, const Where &where)
{
    usc_intercept_api *api = t_api[session.slot];
    if (api == nullptr) return 0;
    if (api->serial != session.serial) {
        api->serial = session.serial;
        api->sequence = write_row(session, *api, where);
    }
    return api->sequence;
}

Slots api_selected()
{
    return t_selected;
}

int64_t api_sequence(const Session &session)
{
    const usc_intercept_api *api = t_api[session.slot];
    return api != nullptr ? api->sequence : 0;
}

void note_api(Session &session)
{
    const usc_intercept_api *api = t_api[session.slot];
    if (api == nullptr || api->serial == session.serial || !api->selected) return;
    Inside inside;
    const Where where = where_now(session);
    if (in_scope(session, where)) (void)api_of(session, where);
}

void api_begin(usc_intercept_api *call)
{
    const Use use(call->slot >= 0 ? bit(call->slot) : 0);
    try {
        if (use) note_api(use[call->slot]);
    } catch (...) { /* nothing of ours may reach the user's program */
    }
}

/* Makes it, or none, the call that this thread is inside of in a slot. */
static void stand_in(int slot, usc_intercept_api *call)
{
    t_api[slot] = call;
    if (call != nullptr && call->selected)
        t_selected |= bit(slot);
    else
        t_selected &= ~bit(slot);
}

void api_enter(usc_intercept_api *call)
{
    call->slot = slot_of(call->session);
    if (call->slot < 0) return;
    call->before = t_api[call->slot];
    stand_in(call->slot, call);
    row(call->slot).autocast = autocast_state();
    row(call->slot).forward.first_node = at::sequence_number::peek();
    row(call->slot).forward.backward_op = 0;
    row(call->slot).parameters.clear();
}

void api_graph(const usc_intercept_api *call, int64_t op, uint64_t first)
{
    if (call->slot < 0) return;
    row(call->slot).forward.first_node = first;
    row(call->slot).forward.backward_op = op;
}

void api_leave(usc_intercept_api *call)
{
    if (call->slot < 0) return;
    stand_in(call->slot, call->before);
    t_slot = call->slot;
}

/* What x[0] = y gives is what it wrote. */
static void add_written(Row &r)
{
    if (!r.outputs.empty()) return;
    for (const auto &[tensor, before] : r.given)
        if (tensor->requires_grad() && tensor->grad_fn().get() != before)
            r.outputs.push_back(tensor);
}

void api_end(usc_intercept_api *call, bool ok)
{
    Row &r = row(t_slot);
    Inside inside;
    const Use use(call->slot >= 0 ? bit(call->slot) : 0);
    if (use && call->sequence != 0 && use[call->slot].serial == call->serial) {
        Session &session = use[call->slot];
        for (usc_capture_tensor &t : r.tensors)
            if (t.maybe == USC_MAYBE_CALLS && !session.aten) t.maybe = USC_MAYBE_CONTENT;
        look_at(session, r.tensors, r.tensors.size());
        usc_capture_end(session.capture, call->sequence, r.tensors.data(),
                        static_cast<int>(r.tensors.size()), ok);
        try {
            r.inputs.insert(r.inputs.end(), r.parameters.begin(), r.parameters.end());
            if (ok && at::GradMode::is_enabled()) {
                add_written(r);
                watch_backward(session, r.forward, r.inputs, r.outputs);
            }
        } catch (...) { /* a graph that cannot be walked has no backward call */
        }
    }
    r.outputs.clear();
    r.given.clear();
    r.parameters.clear();
    r.clear();
}

#if USC_KNOWS_PYTHON
void api_add(void *object, usc_role role, const char *path, usc_maybe maybe)
{
    Row &r = row(t_slot);
    const at::Tensor &tensor = THPVariable_Unpack(static_cast<PyObject *>(object));
    describe_at(r.tensors, tensor, role, r.paths.emplace_back(path).c_str(), maybe);
    if (role == USC_ROLE_OUT) r.outputs.push_back(&tensor);
    if (role == USC_ROLE_IN)
        r.given.emplace_back(&tensor,
                             tensor.requires_grad() ? tensor.grad_fn().get() : nullptr);
    if (role == USC_ROLE_IN && tensor.requires_grad())
        r.inputs.push_back(
            {&tensor, tensor.grad_fn().get(), static_cast<uint32_t>(tensor.output_nr())});
}

void api_parameter(const usc_intercept_api *call, void *object, const char *path)
{
    if (call->slot < 0) return;
    const at::Tensor &tensor = THPVariable_Unpack(static_cast<PyObject *>(object));
    if (tensor.requires_grad() && tensor.is_leaf())
        row(call->slot).parameters.push_back({&tensor, nullptr, 0, path});
}
#else
void api_parameter(const usc_intercept_api *, void *, const char *)
{
}

void api_add(void *, usc_role, const char *, usc_maybe)
{
}
#endif

bool knows_python()
{
    return USC_KNOWS_PYTHON;
}

} // namespace intercept
