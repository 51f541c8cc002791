// SPDX-License-Identifier: Apache-2.0
// What torch.profiler is told of the device: a span of each command, on the row of its
// stream, with an arrow from where it was launched. Needs a torch whose Kineto takes other
// devices in; with an older one the profiler sees the host alone.
#include "../torch_private_device.h"
#include "sim_glue.h"

#include <ulpscope_sim/timeline.h>

#ifdef USC_GLUE_KNOWS_KINETO
#define FMT_HEADER_ONLY
#include <kineto/libkineto.h>
#include <kineto/output_base.h>
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef USC_GLUE_KNOWS_KINETO
#include <sys/types.h>
#include <unistd.h>

#include <cassert>
#include <set>

namespace usc_sim
{
namespace
{

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

constexpr ActivityType LAUNCH = ActivityType::PRIVATEUSE1_RUNTIME;

const std::set<ActivityType> &activities()
{
    static const std::set<ActivityType> all = {ActivityType::CONCURRENT_KERNEL,
                                               ActivityType::GPU_MEMCPY, LAUNCH};
    return all;
}

class Session final : public libkineto::IActivityProfilerSession
{
  public:
    void start() override
    {
        usc_sim_timeline_set_on(true);
    }
    void stop() override
    {
        (void)usc_sim_device_synchronize(-1, nullptr); /* the program is told later */
        usc_sim_timeline_set_on(false);
    }
    std::vector<std::string> errors() override
    {
        return {};
    }
    void processTrace(libkineto::ActivityLogger &logger) override
    {
        processTrace(logger, nullptr, 0, INT64_MAX);
    }
    void processTrace(libkineto::ActivityLogger &logger,
                      libkineto::getLinkedActivityCallback linked, int64_t from,
                      int64_t to) override
    {
        usc_sim_span span;
        assert(buffer_ != nullptr); // it has not been handed out yet
        buffer_->span = libkineto::TraceSpan(from, to, "sim");
        for (size_t i = 0; usc_sim_timeline_get(i, &span); i++) {
            /* What was launched inside the window may begin behind it, as stop() waits. */
            if (span.end < from || span.launched.time > to) continue;
            const auto caller = static_cast<int32_t>(span.launched.caller);
            const auto *cpu = caller != 0 && linked ? linked(caller) : nullptr;
            add(logger, span, i, cpu, true);
            add(logger, span, i, cpu, false);
            rows_.emplace(span.stream.device, span.stream.id);
        }
    }
    std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override
    {
        return nullptr;
    }
    std::vector<libkineto::ResourceInfo> getResourceInfos() override
    {
        std::vector<libkineto::ResourceInfo> rows;
        for (const auto &[device, stream] : rows_)
            rows.push_back({stream, stream, device, "stream " + std::to_string(stream)});
        return rows;
    }
    std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override
    {
        return std::move(buffer_);
    }
    void pushCorrelationId(uint64_t id) override
    {
        before().push_back(usc_sim_timeline_set_caller(id));
    }
    void popCorrelationId() override
    {
        if (before().empty()) return; /* it began before the profiler did */
        (void)usc_sim_timeline_set_caller(before().back());
        before().pop_back();
    }

  private:
    static std::vector<uint64_t> &before()
    {
        thread_local std::vector<uint64_t> ids;
        return ids;
    }

    // The launch, on the row of its thread, or the command, on that of its stream.
    void add(libkineto::ActivityLogger &logger, const usc_sim_span &span, size_t number,
             const libkineto::ITraceActivity *cpu, bool launch)
    {
        const std::string name(span.name);
        const bool copy = name.find("copy") != std::string::npos;
        const ActivityType type = launch ? LAUNCH
                                  : copy ? ActivityType::GPU_MEMCPY
                                         : ActivityType::CONCURRENT_KERNEL;
        buffer_->emplace_activity(buffer_->span, type, launch ? "simLaunch" : name);
        GenericTraceActivity &a = *buffer_->activities.back();
        a.startTime = launch ? span.launched.time : span.begin;
        a.endTime = launch ? std::min(span.launched.time + 1000, span.begin) : span.end;
        a.endTime = std::max(a.endTime, a.startTime + 1);
        a.id = static_cast<int32_t>(number + 1);
        a.device = launch ? static_cast<int32_t>(getpid()) : span.stream.device;
        a.resource = static_cast<int32_t>(launch ? span.launched.thread : span.stream.id);
        a.threadId = static_cast<int32_t>(span.launched.thread);
        a.flow.id = static_cast<uint32_t>(number + 1);
        a.flow.type = libkineto::kLinkAsyncCpuGpu;
        a.flow.start = launch;
        a.linked = cpu;
        if (!launch) a.addMetadata("stream", span.stream.id);
        a.addMetadata("correlation", number + 1);
        a.log(logger);
    }

    std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ =
        std::make_unique<libkineto::CpuTraceBuffer>();
    std::set<std::pair<int, int64_t>> rows_;
};

class Profiler final : public libkineto::IActivityProfiler
{
  public:
    [[nodiscard]] const std::string &name() const override
    {
        static const std::string its = "sim";
        return its;
    }
    [[nodiscard]] const std::set<ActivityType> &availableActivities() const override
    {
        return activities();
    }
    std::unique_ptr<libkineto::IActivityProfilerSession>
    configure(const std::set<ActivityType> &types, const libkineto::Config &) override
    {
        for (const ActivityType type : activities())
            if (types.count(type) != 0) return std::make_unique<Session>();
        return nullptr;
    }
    std::unique_ptr<libkineto::IActivityProfilerSession>
    configure(int64_t, int64_t, const std::set<ActivityType> &types,
              const libkineto::Config &config) override
    {
        return configure(types, config);
    }
};

} // namespace
} // namespace usc_sim

/// Says to torch's profiler that there is a device; false where it does not ask.
EXPORT int usc_glue_sim_register_profiler()
{
    usc_glue::register_profiler([] { return std::make_unique<usc_sim::Profiler>(); });
    return 1;
}

#else

EXPORT int usc_glue_sim_register_profiler()
{
    return 0;
}

#endif
