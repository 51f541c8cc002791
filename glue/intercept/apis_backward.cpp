// SPDX-License-Identifier: Apache-2.0
// The backward pass of a Python function: a call of its own, whose arguments are the
// gradients that come in, and whose results are those of the function's inputs; of a
// module, also those of its parameters. Hooks on the nodes of its graph see both; they
// keep no tensor and change none. Neighbour: apis.cpp, the forward call.
#include "../torch_private_autograd.h"
#include "intercept.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace intercept
{

/* What the hooks of one forward call share. */
struct Watched {
    int slot;
    int64_t serial, op, module, stack;
    int64_t forward; /* sequence */
    size_t n_outputs;
    std::vector<std::string> inputs;  /* paths of their gradients; empty: not told */
    std::atomic<int64_t> sequence{0}; /* of the latest backward call */
    std::mutex mutex;
    std::unordered_set<std::string> told; /* paths of its results, under the mutex */

    /* Whether a result is one of the latest call, and its first at that path: a second
     * derivative runs nodes of the graph again past its outputs. */
    bool is_new(const std::string &path)
    {
        std::lock_guard<std::mutex> lock(mutex);
        return sequence != 0 && told.insert(path).second;
    }
};

namespace
{

namespace ag = torch::autograd;

using WatchedRef = std::shared_ptr<Watched>;

enum { MOST_NODES = 4096 };

/* Does something in the session of a call, where that is attached and this thread is not
 * inside a call of it. Nothing of ours may reach the user's program. */
template <class Work> void guarded(const Watched &w, Work work)
{
    try {
        const Inside inside;
        if ((inside.before & bit(w.slot)) != 0) return;
        const Use use(bit(w.slot));
        if (use && use[w.slot].serial == w.serial) work(use[w.slot]);
    } catch (...) {
    }
}

void begin(Session &session, Watched &w, const ag::variable_list &grads,
           const std::vector<std::pair<uint32_t, size_t>> &outputs)
{
    Tensors tensors;
    std::vector<std::string> paths(w.n_outputs);
    std::vector<bool> there(w.n_outputs, false);
    for (const auto &[nr, output] : outputs) {
        if (nr >= grads.size() || !grads[nr].defined()) continue;
        paths[output] = "args[" + std::to_string(output) + "]";
        there[output] = true;
        describe_at(tensors, grads[nr], USC_ROLE_IN, paths[output].c_str(),
                    USC_MAYBE_NOT);
    }
    if (tensors.empty()) return;
    Arguments args;
    usc_writing_begin(&args);
    for (size_t i = 0; i < w.n_outputs; ++i) {
        usc_value value = {};
        value.kind = there[i] ? USC_VALUE_TENSOR : USC_VALUE_NONE;
        usc_writing_value(&args, &value);
    }
    usc_writing_names(&args);
    const std::string state = "{\"forward\": " + std::to_string(w.forward) + "}";
    usc_capture_call call = {};
    call.op = w.op;
    call.phase = USC_PHASE_BACKWARD;
    call.module = w.module;
    call.stack = w.stack;
    call.thread = thread_number();
    call.args = usc_writing_end(&args);
    call.state = state.c_str();
    call.composite = true;
    call.tensors = tensors.data();
    call.n_tensors = static_cast<int>(tensors.size());
    look_at(session, tensors, tensors.size());
    std::lock_guard<std::mutex> lock(w.mutex);
    w.told.clear();
    w.sequence = usc_capture_begin(session.capture, &call);
    usc_capture_end(session.capture, w.sequence, nullptr, 0, true);
}

/* Compiled autograd asks a hook how it is to be compiled: not at all. Whether its
 * question is const depends on torch. */
struct Uncompiled {
};

struct Incoming : ag::FunctionPreHook {
    WatchedRef watched;
    std::vector<std::pair<uint32_t, size_t>> outputs; /* of the node, of the call */

    ag::variable_list operator()(const ag::variable_list &grads) override
    {
        guarded(*watched,
                [&](Session &session) { begin(session, *watched, grads, outputs); });
        return grads;
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &) const
    {
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &)
    {
    }
};

struct Outgoing : ag::FunctionPostHook {
    WatchedRef watched;
    std::vector<std::pair<size_t, size_t>> inputs; /* of the node's edges, of the call */

    ag::variable_list operator()(const ag::variable_list &outputs,
                                 const ag::variable_list &) override
    {
        guarded(*watched, [&](Session &session) {
            Tensors tensors;
            for (const auto &[edge, input] : inputs)
                if (edge < outputs.size() && outputs[edge].defined() &&
                    watched->is_new(watched->inputs[input]))
                    describe_at(tensors, outputs[edge], USC_ROLE_OUT,
                                watched->inputs[input].c_str(), USC_MAYBE_NOT);
            look_past(session, tensors);
            if (!tensors.empty())
                usc_capture_more(session.capture, watched->sequence, tensors.data(),
                                 static_cast<int>(tensors.size()));
        });
        return outputs;
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &) const
    {
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &)
    {
    }
};

/* The whole gradient of an input of a module, from all that read it: where several ways
 * inside the module lead to it, no edge carries what the module gives. */
struct Whole : ag::FunctionPreHook {
    WatchedRef watched;
    std::vector<std::pair<uint32_t, size_t>> inputs; /* of the node, of the call */

    ag::variable_list operator()(const ag::variable_list &grads) override
    {
        guarded(*watched, [&](Session &session) {
            Tensors tensors;
            std::vector<std::string> paths;
            paths.reserve(inputs.size());
            for (const auto &[nr, input] : inputs) {
                const std::string path = "whole[" + std::to_string(input) + "]";
                if (nr < grads.size() && grads[nr].defined() && watched->is_new(path))
                    describe_at(tensors, grads[nr], USC_ROLE_OUT,
                                paths.emplace_back(path).c_str(), USC_MAYBE_NOT);
            }
            look_past(session, tensors);
            if (!tensors.empty())
                usc_capture_more(session.capture, watched->sequence, tensors.data(),
                                 static_cast<int>(tensors.size()));
        });
        return grads;
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &) const
    {
    }
    void compiled_args(torch::dynamo::autograd::CompiledNodeArgs &)
    {
    }
};

/* ---- the graph of one call ---- */

struct EdgeOut {
    ag::Node *node;
    size_t edge, input;
};

bool is_made_here(const ag::Node &node, uint64_t first)
{
    return node.sequence_nr() >= first && node.sequence_nr() != UINT64_MAX;
}

/* The edges that leave the graph towards inputs. */
std::vector<EdgeOut> edges_out(const std::vector<ag::Node *> &roots, uint64_t first,
                               const std::vector<ApiInput> &inputs)
{
    std::vector<EdgeOut> found;
    std::vector<ag::Node *> left = roots;
    std::unordered_set<ag::Node *> seen(roots.begin(), roots.end());
    std::unordered_multimap<ag::Node *, size_t> wanted;
    for (size_t k = 0; k < inputs.size(); ++k)
        wanted.emplace(inputs[k].node, k);
    while (!left.empty() && seen.size() < MOST_NODES) {
        ag::Node *node = left.back();
        left.pop_back();
        for (size_t i = 0; i < node->next_edges().size(); ++i) {
            const ag::Edge &edge = node->next_edges()[i];
            ag::Node *next = edge.function.get();
            if (next == nullptr) continue;
            bool input = false;
            const auto [from, to] = wanted.equal_range(next);
            for (auto k = from; k != to; ++k) {
                if (inputs[k->second].nr != edge.input_nr) continue;
                found.push_back({node, i, k->second});
                input = true;
            }
            if (!input && is_made_here(*next, first) && seen.insert(next).second)
                left.push_back(next);
        }
    }
    return found;
}

/* A gradient that comes along several ways is their sum, which no hook sees. */
void drop_sums(std::vector<EdgeOut> &edges, size_t n_inputs)
{
    std::vector<int> n(n_inputs, 0);
    for (const EdgeOut &e : edges)
        ++n[e.input];
    edges.erase(std::remove_if(edges.begin(), edges.end(),
                               [&](const EdgeOut &e) { return n[e.input] > 1; }),
                edges.end());
}

void hook_inputs(const WatchedRef &w, const std::vector<EdgeOut> &edges)
{
    std::unordered_map<ag::Node *, std::unique_ptr<Outgoing>> hooks;
    for (const EdgeOut &e : edges) {
        auto &hook = hooks[e.node];
        if (!hook) hook = std::make_unique<Outgoing>();
        hook->watched = w;
        hook->inputs.emplace_back(e.edge, e.input);
    }
    for (auto &[node, hook] : hooks)
        node->add_post_hook(std::move(hook));
}

/* Not of leaves: their nodes may outlive the step. */
void hook_wholes(const WatchedRef &w, const std::vector<EdgeOut> &edges,
                 const std::vector<ApiInput> &inputs)
{
    std::unordered_map<ag::Node *, std::unique_ptr<Whole>> hooks;
    std::unordered_set<size_t> done;
    for (const EdgeOut &e : edges) {
        TORCH_INTERNAL_ASSERT(e.input < inputs.size());
        ag::Node *node = inputs[e.input].node;
        TORCH_INTERNAL_ASSERT(node != nullptr);
        if (node->sequence_nr() == UINT64_MAX || !done.insert(e.input).second) continue;
        auto &hook = hooks[node];
        if (!hook) hook = std::make_unique<Whole>();
        hook->watched = w;
        hook->inputs.emplace_back(inputs[e.input].nr, e.input);
    }
    for (auto &[node, hook] : hooks)
        node->add_pre_hook(std::move(hook));
}

} // namespace

void watch_backward(Session &session, const ApiForward &f, std::vector<ApiInput> inputs,
                    const std::vector<const at::Tensor *> &outputs)
{
    std::unordered_map<ag::Node *, std::unique_ptr<Incoming>> hooks;
    std::vector<ag::Node *> roots;
    for (size_t i = 0; i < outputs.size(); ++i) {
        ag::Node *node =
            outputs[i]->requires_grad() ? outputs[i]->grad_fn().get() : nullptr;
        if (node == nullptr || !is_made_here(*node, f.first_node)) continue;
        auto &hook = hooks[node];
        if (!hook) {
            hook = std::make_unique<Incoming>();
            roots.push_back(node);
        }
        hook->outputs.emplace_back(outputs[i]->output_nr(), i);
    }
    if (hooks.empty()) return;
    auto w = std::make_shared<Watched>();
    w->slot = f.slot;
    w->serial = f.serial;
    w->op = f.backward_op != 0 ? f.backward_op : f.op;
    w->module = f.module;
    w->stack = f.stack;
    w->forward = f.sequence;
    w->n_outputs = outputs.size();
    for (size_t k = 0; k < inputs.size(); ++k) {
        w->inputs.push_back(inputs[k].path.empty() ? "out[" + std::to_string(k) + "]"
                                                   : inputs[k].path);
        if (inputs[k].node == nullptr) /* a leaf, whose node may have come since */
            inputs[k].node = usc_glue::grad_accumulator_of(*inputs[k].tensor);
    }
    std::vector<EdgeOut> edges = edges_out(roots, f.first_node, inputs);
    if (f.backward_op != 0) hook_wholes(w, edges, inputs);
    drop_sums(edges, inputs.size());
    hook_inputs(w, edges);
    for (auto &[node, hook] : hooks) {
        hook->watched = w;
        node->add_pre_hook(std::move(hook));
    }
    std::lock_guard<std::mutex> lock(session.mutex);
    session.backward_calls[f.sequence] = w;
}

/* Under the session's mutex. */
int64_t backward_of(Session &session, int64_t forward)
{
    if (forward == 0) return 0;
    const auto found = session.backward_calls.find(forward);
    return found == session.backward_calls.end() ? 0 : found->second->sequence.load();
}

} // namespace intercept
