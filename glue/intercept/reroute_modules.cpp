// SPDX-License-Identifier: Apache-2.0
// Routes that are for some modules alone: in which of them each thread is, and of which
// forward a backward call is part. Neighbour: reroute_kernel.cpp, which asks.
#include "reroute.h"

#include <ulpscope/x/pattern.h>

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>

namespace intercept
{

namespace
{

constexpr size_t MOST_CHANGES = 1 << 16; /* of a thread; twice that are kept at most */

} // namespace

/* Autograd numbers the nodes that a thread makes: where the thread goes into a module
 * that is meant, and out of it, the next number is noted. A node belongs to the stretch
 * that its number lies in, however late, and on whatever thread, it runs. */
struct Modules {
    struct Entered {
        bool meant, late; /* late: inside a backward pass */
    };
    struct Thread {
        std::vector<Entered> inside;
        std::vector<std::pair<uint64_t, bool>> changes; /* from this number on */
    };
    std::string pattern;
    std::mutex mutex;
    std::unordered_map<uint64_t, Thread> threads; /* as autograd numbers them */

    Thread &mine()
    {
        return threads[at::RecordFunction::currentThreadId()];
    }

    static void note(Thread &thread)
    {
        const bool meant = !thread.inside.empty() && thread.inside.back().meant;
        auto &changes = thread.changes;
        if (meant == (!changes.empty() && changes.back().second)) return;
        if (changes.size() >= 2 * MOST_CHANGES)
            changes.erase(changes.begin(), changes.begin() + MOST_CHANGES);
        changes.emplace_back(at::sequence_number::peek(), meant);
    }

    bool made(uint64_t thread, uint64_t number) const
    {
        const auto found = threads.find(thread);
        if (found == threads.end()) return false;
        const auto &changes = found->second.changes;
        const auto after = std::upper_bound(
            changes.begin(), changes.end(), number,
            [](uint64_t n, const std::pair<uint64_t, bool> &c) { return n < c.first; });
        return after != changes.begin() && std::prev(after)->second;
    }
};

std::shared_ptr<Modules> make_modules(const char *pattern)
{
    TORCH_INTERNAL_ASSERT(pattern != nullptr);
    auto modules = std::make_shared<Modules>();
    modules->pattern = pattern;
    return modules;
}

bool covers(const Modules &modules, const char *path)
{
    return usc_pattern_covers(modules.pattern.c_str(), path);
}

void enter_module(Modules &modules, bool meant)
{
    std::lock_guard<std::mutex> lock(modules.mutex);
    Modules::Thread &thread = modules.mine();
    thread.inside.push_back({meant, in_backward()});
    Modules::note(thread);
}

/* None at all: hooks may have come while a module was running. */
void leave_module(Modules &modules)
{
    std::lock_guard<std::mutex> lock(modules.mutex);
    Modules::Thread &thread = modules.mine();
    if (!thread.inside.empty()) thread.inside.pop_back();
    Modules::note(thread);
}

int64_t module_depth(Modules &modules)
{
    std::lock_guard<std::mutex> lock(modules.mutex);
    return static_cast<int64_t>(modules.mine().inside.size());
}

void leave_modules(Modules &modules)
{
    std::lock_guard<std::mutex> lock(modules.mutex);
    Modules::Thread &thread = modules.mine();
    thread.inside.clear();
    Modules::note(thread);
}

bool in_modules(Modules &modules)
{
    const auto node = torch::autograd::get_current_node();
    std::lock_guard<std::mutex> lock(modules.mutex);
    const auto &inside = modules.mine().inside;
    /* What was entered since is the place, not the node that wants it run (gradient
     * checkpointing). */
    if (!inside.empty() && (!node || inside.back().late)) return inside.back().meant;
    return node && modules.made(node->thread_id(), node->sequence_nr());
}

} // namespace intercept
