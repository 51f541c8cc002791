// SPDX-License-Identifier: Apache-2.0
// When the phases of a DDP step began and ended, as DDP's own statistics ask of a device:
// points in the current stream, so that nobody waits for them.
#include "../torch_private_ranks.h"
#include "simccl.h"

#ifdef USC_GLUE_KNOWS_TIMERS

namespace usc_simccl
{

class SimTimer final : public c10d::Timer
{
  public:
    explicit SimTimer(c10::Device device) : device_(device)
    {
        TORCH_INTERNAL_ASSERT(device.type() == DEVICE);
    }
    ~SimTimer() override
    {
        for (const auto &at : events_)
            usc_sim_event_free(at.second);
    }
    void record(Event event) override
    {
        usc_error err{};
        usc_sim_event *&at = events_[event];
        Timer::record(event); // the host's time, beside
        if (at == nullptr && usc_sim_event_create(true, &at, &err) != USC_OK) return;
        (void)usc_sim_event_record(at, usc_sim_stream_current(device_.index()), &err);
    }
    // What torch has for a value that may be missing: std's, or that of an older torch.
    using Difference = decltype(std::declval<c10d::Timer &>().measureDifference(
        Event::kForwardStart, Event::kForwardStart));
    Difference measureDifference(Event start, Event end) override
    {
        usc_error err{};
        double ms = 0;
        const auto from = events_.find(start), to = events_.find(end);
        if (from == events_.end() || to == events_.end() || from->second == nullptr ||
            to->second == nullptr ||
            usc_sim_event_elapsed(from->second, to->second, &ms, &err) != USC_OK ||
            ms < 0)
            return {};
        return static_cast<int64_t>(ms * 1e6);
    }

  private:
    c10::Device device_;
    std::map<Event, usc_sim_event *> events_;
};

} // namespace usc_simccl

namespace c10d
{
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, usc_simccl::SimTimer)
} // namespace c10d

#endif
