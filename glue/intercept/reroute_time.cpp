// SPDX-License-Identifier: Apache-2.0
// How long calls take, by operator: events in the device's own stream where it has them,
// read when they are asked for; else the clock.
#include "reroute.h"

#include <c10/core/Event.h>

#include <chrono>

namespace intercept
{

namespace
{

constexpr size_t MOST_PENDING = 4096; /* pairs of events, of all threads of a route */

using Clock = std::chrono::steady_clock;

std::optional<c10::Event> event_now(c10::Device device)
{
    c10::Event event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
    event.record(usc_glue::current_stream(device));
    return event;
}

c10::Device device_of(const Target &target, const IValue *values)
{
    c10::Device found(at::kCPU);
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        if (found.is_cpu() && values[i].isDevice()) found = values[i].toDevice();
        each_tensor(values[i], [&](const at::Tensor &t) {
            if (found.is_cpu()) found = t.device();
        });
    }
    return found;
}

} // namespace

struct Timing {
    struct Pending {
        std::pair<const Target *, usc_phase> what;
        c10::Event begin, end;
    };
    std::mutex mutex;
    std::map<std::pair<const Target *, usc_phase>, TimedCalls> rows;
    std::vector<Pending> pending;
    std::atomic<bool> no_events{false};
    bool (*optimizer)(void);

    void add(const std::pair<const Target *, usc_phase> &what, double ms, bool by_event)
    {
        TimedCalls &row = rows[what];
        ++row.n;
        row.total_ms += ms;
        row.most_ms = std::max(row.most_ms, ms);
        row.by_event = by_event;
    }

    void read_events()
    {
        for (Pending &p : pending) {
            double ms = 0;
            try {
                older::wait_for(p.end, 0);
                ms = older::milliseconds(p.begin, p.end, 0);
            } catch (const std::exception &) { /* the device has events without times */
                no_events.store(true);
            }
            add(p.what, ms, true);
        }
        pending.clear();
    }
};

std::shared_ptr<Timing> make_timing(bool (*optimizer)(void))
{
    auto timing = std::make_shared<Timing>();
    timing->optimizer = optimizer;
    return timing;
}

std::vector<std::tuple<const Target *, usc_phase, TimedCalls>> rows_of(Timing &timing)
{
    std::lock_guard<std::mutex> lock(timing.mutex);
    timing.read_events();
    std::vector<std::tuple<const Target *, usc_phase, TimedCalls>> rows;
    for (const auto &[what, row] : timing.rows)
        rows.emplace_back(what.first, what.second, row);
    return rows;
}

void run_timed(Timing &timing, const Target &target, const IValue *values,
               const std::function<void()> &run)
{
    TORCH_INTERNAL_ASSERT(run != nullptr);
    const c10::Device device = device_of(target, values);
    const usc_phase phase = in_backward() ? USC_PHASE_BACKWARD
                            : timing.optimizer != nullptr && timing.optimizer()
                                ? USC_PHASE_OPTIMIZER
                                : USC_PHASE_FORWARD;
    const std::pair<const Target *, usc_phase> what(&target, phase);
    std::optional<c10::Event> begin, end;
    const bool wants_events = !device.is_cpu() && !device.is_meta();
    if (wants_events && !timing.no_events.load()) {
        try {
            begin = event_now(device);
        } catch (const std::exception &) { /* it has none */
            timing.no_events.store(true);
        }
    }
    const Clock::time_point from = Clock::now();
    run();
    if (begin) {
        try {
            end = event_now(device);
        } catch (const std::exception &) {
            timing.no_events.store(true);
        }
    } else if (wants_events) {
        try {
            usc_glue::current_stream(device).synchronize();
        } catch (const std::exception &) { /* it knows no streams: nothing is pending */
        }
    }
    const std::chrono::duration<double, std::milli> took = Clock::now() - from;
    std::lock_guard<std::mutex> lock(timing.mutex);
    if (!begin || !end) {
        timing.add(what, took.count(), false);
        return;
    }
    timing.pending.push_back({what, std::move(*begin), std::move(*end)});
    if (timing.pending.size() >= MOST_PENDING) timing.read_events();
}

} // namespace intercept
