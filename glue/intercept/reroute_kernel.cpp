// SPDX-License-Identifier: Apache-2.0
// The kernel that stands in front of a device's: which route takes a call, if any.
// Neighbours: reroute.cpp, where it is put; reroute_run.cpp, how a call is computed.
#include "reroute.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <sys/syscall.h>
#include <unistd.h>

namespace intercept
{

namespace
{

thread_local bool t_looking = false; /* inside a call that is timed or counted */
thread_local bool t_moving = false;  /* what runs now serves a route */
thread_local std::vector<const Route *> t_within; /* composite calls around this one */
thread_local std::vector<std::pair<const Route *, const Target *>> t_busy;

int64_t thread_id()
{
    thread_local const int64_t id = static_cast<int64_t>(syscall(SYS_gettid));
    return id;
}

bool takes(const Route &route, bool direct, const Target &target, const IValue *values)
{
    if (!route.on.load(std::memory_order_acquire)) return false;
    if (!direct && std::find(t_within.begin(), t_within.end(), &route) == t_within.end())
        return false;
    if (!route.threads.empty() && std::find(route.threads.begin(), route.threads.end(),
                                            thread_id()) == route.threads.end())
        return false;
    for (const auto &[busy, at] : t_busy)
        if (busy == &route && at == &target) return false;
    if (route.modules && !in_modules(*route.modules)) return false;
    return has_work(route, target, values);
}

class Taken;
thread_local const Taken *t_taken = nullptr; /* the innermost */

/* Holds a route while this thread is in it; null: none takes the call. */
class Taken
{
  public:
    Taken(const Target &target, const IValue *values, bool looks) : outer_(t_taken)
    {
        t_taken = this;
        const Reading reading(target);
        if (t_moving || reading.choices == nullptr || (looks && t_looking) ||
            usc_is_aside())
            return;
        for (const auto &[route, direct] : *reading.choices) {
            if (only_looks(*route) != looks) continue;
            route->n_uses.fetch_add(1);
            if (takes(*route, direct, target, values)) {
                route_ = route;
                return;
            }
            route->n_uses.fetch_sub(1);
        }
    }
    ~Taken()
    {
        t_taken = outer_;
        if (route_ != nullptr && route_->observer && !route_->on.load())
            flush(*route_->observer); /* it was left inside */
        if (route_ != nullptr) route_->n_uses.fetch_sub(1);
    }
    Taken(const Taken &) = delete;
    Taken &operator=(const Taken &) = delete;
    Route *get() const
    {
        return route_;
    }
    static int64_t n_of(const Route &route)
    {
        int64_t n = 0;
        for (const Taken *t = t_taken; t != nullptr; t = t->outer_)
            n += t->route_ == &route;
        return n;
    }

  private:
    Route *route_ = nullptr;
    const Taken *const outer_;
};

template <class T> class Pushed
{
  public:
    Pushed(std::vector<T> &to, std::vector<T> what) : to_(to), n_(what.size())
    {
        to_.insert(to_.end(), what.begin(), what.end());
    }
    ~Pushed()
    {
        to_.resize(to_.size() - n_);
    }
    Pushed(const Pushed &) = delete;
    Pushed &operator=(const Pushed &) = delete;

  private:
    std::vector<T> &to_;
    size_t n_;
};

struct Moving {
    bool before = t_moving;
    Moving()
    {
        t_moving = true;
    }
    ~Moving()
    {
        t_moving = before;
    }
};

struct Looking {
    Looking()
    {
        t_looking = true;
    }
    ~Looking()
    {
        t_looking = false;
    }
};

void count(Route &route, const Target &target)
{
    std::lock_guard<std::mutex> lock(route.mutex);
    ++route.calls[&target];
}

void run_own(const Slot &slot, DispatchKeySet keys, Stack *stack)
{
    TORCH_CHECK_NOT_IMPLEMENTED(slot.covered, slot.target->op.name,
                                " has no kernel on this device");
    slot.covered(slot.target->op.handle, keys, stack);
}

/* Of a composite, above autograd: what the function does is recorded there. */
void substitute(const Slot &slot, Route &route, Stack *stack)
{
    const Pushed<std::pair<const Route *, const Target *>> busy(t_busy,
                                                                {{&route, slot.target}});
    count(route, *slot.target);
    if (slot.composite) {
        run_function(route, *slot.target, stack);
    } else {
        at::AutoDispatchBelowADInplaceOrView autograd;
        usc_glue::WithoutKeys autocast(c10::autocast_dispatch_keyset);
        run_function(route, *slot.target, stack);
    }
}

void run_composite(const Slot &slot, DispatchKeySet keys, Stack *stack)
{
    std::vector<const Route *> around;
    {
        const Reading reading(*slot.target);
        if (reading.choices != nullptr)
            for (const auto &[route, direct] : *reading.choices)
                if (direct) around.push_back(route);
    }
    const Pushed<const Route *> within(t_within, std::move(around));
    run_own(slot, keys, stack);
}

struct RouteKernel : c10::OperatorKernel {
    explicit RouteKernel(Slot *slot) : slot_(slot)
    {
    }

    void operator()(const OperatorHandle &, DispatchKeySet keys, Stack *stack)
    {
        const Target &target = *slot_->target;
        const IValue *values =
            stack->data() + (stack->size() - target.op.arguments.size());
        if (slot_->composite) return compute(keys, stack);
        const Taken looks(target, values, true);
        Route *route = looks.get();
        if (route == nullptr) return compute(keys, stack);
        const Looking looking;
        if (route->observer)
            observe(*route->observer, keys, stack);
        else if (route->timing)
            run_timed(*route->timing, target, values, [&] { compute(keys, stack); });
        else
            compute(keys, stack);
        count(*route, target);
    }

  private:
    /* Reading tensors calls operators, which are none of the program's. */
    template <class Work> static void aside(Work work)
    {
        const Moving moving;
        Inside inside;
        at::AutoDispatchBelowADInplaceOrView below;
        try {
            work();
        } catch (...) { /* nothing of ours may reach the user's program */
        }
    }

    void observe(Observer &observer, DispatchKeySet keys, Stack *stack)
    {
        const Target &target = *slot_->target;
        const IValue *values =
            stack->data() + (stack->size() - target.op.arguments.size());
        std::string line;
        std::vector<std::pair<size_t, IValue>> written;
        aside([&] {
            line = observed_before(observer, target, values);
            for (size_t i = 0; i < target.op.arguments.size(); ++i)
                if (target.op.arguments[i].written) written.emplace_back(i, values[i]);
        });
        const IValue *results = nullptr;
        try {
            compute(keys, stack);
            results = stack->data() + (stack->size() - target.op.n_returns);
        } catch (...) {
            aside([&] { observed_after(observer, target, line, written, nullptr); });
            throw;
        }
        aside([&] { observed_after(observer, target, line, written, results); });
    }

    void compute(DispatchKeySet keys, Stack *stack)
    {
        const Slot &slot = *slot_;
        Target &target = *slot.target;
        const IValue *values =
            stack->data() + (stack->size() - target.op.arguments.size());
        const Taken taken(target, values, false);
        Route *route = taken.get();
        if (route != nullptr && route->kind == USC_REROUTE_SUBSTITUTE)
            return substitute(slot, *route, stack);
        if (slot.composite) return run_composite(slot, keys, stack);
        if (route == nullptr) return run_own(slot, keys, stack);
        bool done = true;
        {
            const Moving moving;
            Inside inside;
            if (route->kind == USC_REROUTE_REDUCTION)
                run_collective(target, slot.covered, keys, stack);
            else
                done = run_moved(*route, target, slot.covered, keys, stack);
        }
        if (!done) return run_own(slot, keys, stack);
        count(*route, target);
    }

    Slot *slot_;
};

} // namespace

int64_t n_own_uses(const Route &route)
{
    return Taken::n_of(route);
}

bool only_looks(const Route &route)
{
    return route.kind >= USC_REROUTE_TIME;
}

bool in_substitute()
{
    return !t_busy.empty();
}

c10::KernelFunction kernel_for(Slot *slot)
{
    TORCH_INTERNAL_ASSERT(slot != nullptr && slot->target != nullptr);
    return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<RouteKernel>(slot));
}

} // namespace intercept
