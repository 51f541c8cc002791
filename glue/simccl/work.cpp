// SPDX-License-Identifier: Apache-2.0
// How calls of simccl run on streams, and the c10d::Work that stands for one under way.
#include "../older.h"
#include "simccl.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <ulpscope_sim/memory.h>

#include <chrono>
#include <thread>

namespace usc_simccl
{
namespace
{

using std::chrono::milliseconds;

void check(usc_status status, const usc_error &err)
{
    if (status == USC_OK) return;
    TORCH_CHECK_WITH(DistBackendError, status != USC_E_IO, err.text);
    TORCH_CHECK(false, err.text);
}

// Raises what a call has said.
void raise(const Progress &p)
{
    TORCH_CHECK_WITH(DistBackendError, p.status != USC_E_IO, p.text);
    TORCH_CHECK(p.status == USC_OK, p.text);
}

class OneWork final : public c10d::Work
{
  public:
    OneWork(int rank, c10d::OpType type, std::shared_ptr<Progress> progress, int device,
            std::vector<at::Tensor> outputs, bool host_waits)
        : c10d::Work(rank, type), progress_(std::move(progress)), device_(device),
          outputs_(std::move(outputs)), host_waits_(host_waits)
    {
        usc_error err{};
        check(usc_sim_event_create(false, &event_, &err), err);
    }
    ~OneWork()
    {
        usc_sim_event_free(event_);
    }
    void launched(usc_sim_stream stream)
    {
        usc_error err{};
        check(usc_sim_event_record(event_, stream, &err), err);
        complete_future(stream);
    }

    bool isCompleted()
    {
        return progress_->ended;
    }
    bool isSuccess() const
    {
        return progress_->ended && progress_->status == USC_OK;
    }
    std::exception_ptr exception() const
    {
        if (!progress_->ended || progress_->status == USC_OK) return nullptr;
        try {
            raise(*progress_);
        } catch (...) {
            return std::current_exception();
        }
        return nullptr;
    }
    int sourceRank() const
    {
        return progress_->source;
    }
    std::vector<at::Tensor> result()
    {
        return outputs_;
    }
    void synchronize()
    {
        wait(kNoTimeout);
    }
    // The current stream comes behind it; the host where it has to.
    bool wait(milliseconds timeout)
    {
        usc_error err{};
        const usc_sim_stream current = usc_sim_stream_current(device_);
        if (host_waits_ || timeout != kNoTimeout || usc_sim_launch_blocking())
            wait_here(timeout);
        check(usc_sim_stream_wait(current, event_, &err), err);
        if (progress_->ended && progress_->status != USC_OK) raise_once();
        return true;
    }
    void blockCurrentStream()
    {
        usc_error err{};
        check(usc_sim_stream_wait(usc_sim_stream_current(device_), event_, &err), err);
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture()
    {
        return future_;
    }

  private:
    // The stream that launched it knows of it, too, and need not raise it
    // again; what else it has to tell is raised first.
    void raise_once()
    {
        usc_error err{};
        const usc_status st =
            usc_sim_stream_synchronize(usc_sim_stream_current(device_), &err);
        if (st != USC_OK && std::strstr(err.text, progress_->text.c_str()) == nullptr)
            check(st, err);
        raise(*progress_);
    }
    void wait_here(milliseconds timeout)
    {
        usc_error err{};
        if (timeout == kNoTimeout) {
            // What it says is raised by who asks progress_.
            (void)usc_sim_event_synchronize(event_, &err);
            return;
        }
        const auto end = std::chrono::steady_clock::now() + timeout;
        while (!usc_sim_event_query(event_)) {
            TORCH_CHECK(std::chrono::steady_clock::now() < end,
                        "simccl: the work has not ended within ", timeout.count(), " ms");
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }

    // Complete at once, as far as the host goes: who takes its value has their stream put
    // behind the stream that is current here.
    void complete_future(usc_sim_stream stream)
    {
        const auto index = static_cast<c10::DeviceIndex>(stream.device);
        future_ = c10::make_intrusive<c10::ivalue::Future>(
            c10::ListType::create(c10::TensorType::get()),
            std::vector<c10::Device>{c10::Device(DEVICE, index)});
        const c10::StreamGuard theirs(
            c10::Stream(c10::Stream::UNSAFE, c10::Device(DEVICE, index), stream.id));
        future_->markCompleted(at::IValue(outputs_));
    }

    std::shared_ptr<Progress> progress_;
    int device_;
    std::vector<at::Tensor> outputs_;
    bool host_waits_;
    usc_sim_event *event_ = nullptr;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// ---- on the communicator's thread

usc_status act(Job &job, usc_error *err)
{
    if (!job.is_message) {
        const usc_ccl_call call{job.kind,        job.op,          job.dtype,
                                job.root,        job.from.data(), job.to.data(),
                                job.from.size(), job.to.size()};
        return usc_ccl_run(job.group->ccl, &call, err);
    }
    if (!job.from.empty())
        return usc_ccl_send(job.group->ccl, job.peer, job.tag, job.from[0], err);
    int from = job.peer;
    const usc_status st = usc_ccl_receive(job.group->ccl, &from, job.tag, job.to[0], err);
    job.progress->source = from;
    return st;
}

usc_status run_job(void *ctx, usc_error *err)
{
    TORCH_INTERNAL_ASSERT(ctx != nullptr);
    auto &job = *static_cast<Job *>(ctx);
    const usc_status st = act(job, err);
    job.progress->status = st;
    if (st != USC_OK) {
        job.progress->text = err->text;
        // Who launched it hears of it at their next wait, whether or not they ever ask the
        // work: before it has ended, so that nobody waits past it.
        usc_sim_stream_fail(job.launched_on, job.name.c_str(), err);
    }
    job.progress->ended = true;
    return USC_OK; // told where it was launched
}

void drop_job(void *ctx)
{
    delete static_cast<Job *>(ctx);
}

} // namespace

int usc_sim_device()
{
    return c10::DeviceGuard(c10::Device(DEVICE)).current_device().index();
}

Job::~Job()
{
    for (const void *address : pinned)
        usc_sim_unpin(address);
}

// ---- a group

Group::Group(const usc_ccl_options &options)
{
    usc_error err{};
    check(usc_ccl_open(&options, &ccl, &err), err);
}

Group::~Group()
{
    usc_ccl_close(ccl);
}

// One thread at a time may run collectives: they stay on the stream of the first.
usc_sim_stream Group::collectives(int device)
{
    const std::lock_guard<std::mutex> hold(mutex_);
    if (!has_collectives_) {
        of_collectives_ = usc_sim_stream_next_for_ranks(device);
        used_.push_back(of_collectives_);
        has_collectives_ = true;
    }
    return of_collectives_;
}

usc_sim_stream Group::messages(int device, int peer, bool sends)
{
    const std::lock_guard<std::mutex> hold(mutex_);
    const auto key = std::make_pair(peer, sends);
    const auto found = of_messages_.find(key);
    if (found != of_messages_.end()) return found->second;
    used_.push_back(usc_sim_stream_next_for_ranks(device));
    return of_messages_[key] = used_.back();
}

c10::intrusive_ptr<c10d::Work> Group::launch(std::unique_ptr<Job> job,
                                             usc_sim_stream stream, int device,
                                             const std::vector<at::Tensor> &touched,
                                             const std::vector<at::Tensor> &outputs,
                                             int rank, c10d::OpType type, bool host_waits)
{
    usc_error err{};
    const usc_sim_stream current = usc_sim_stream_current(device);
    check(usc_sim_stream_wait_stream(stream, current, &err), err);
    // The memory stays what it is until the call has ended, whoever frees it meanwhile.
    for (const at::Tensor &t : touched) {
        const void *address = t.storage().data();
        if (address == nullptr) continue;
        check(usc_sim_record_stream(address, stream, &err), err);
        usc_sim_pin(address);
        job->pinned.push_back(address);
    }
    job->group = shared_from_this();
    job->launched_on = current;
    auto work = c10::make_intrusive<OneWork>(rank, type, job->progress, device, outputs,
                                             host_waits);
    usc_sim_command c{};
    c.run = run_job;
    c.drop = drop_job;
    std::strncpy(c.name, job->name.c_str(), sizeof c.name - 1);
    c.ctx = job.release(); // dropped in each case
    check(usc_sim_submit(stream, &c, &err), err);
    work->launched(stream);
    return work;
}

void Group::settle()
{
    usc_error err{};
    std::vector<usc_sim_stream> all;
    {
        const std::lock_guard<std::mutex> hold(mutex_);
        all = used_;
    }
    for (const usc_sim_stream s : all)
        (void)usc_sim_stream_synchronize(s, &err);
}

// ---- many

ManyWorks::ManyWorks(int rank, c10d::OpType type,
                     std::vector<c10::intrusive_ptr<c10d::Work>> all,
                     std::vector<at::Tensor> outputs)
    : c10d::Work(rank, type), all_(std::move(all)), outputs_(std::move(outputs))
{
}

bool ManyWorks::isCompleted()
{
    return std::all_of(all_.begin(), all_.end(),
                       [](const auto &w) { return w->isCompleted(); });
}

bool ManyWorks::isSuccess() const
{
    return std::all_of(all_.begin(), all_.end(),
                       [](const auto &w) { return w->isSuccess(); });
}

void ManyWorks::synchronize()
{
    for (const auto &w : all_)
        w->synchronize();
}

bool ManyWorks::wait(milliseconds timeout)
{
    for (const auto &w : all_)
        w->wait(timeout);
    return true;
}

std::vector<at::Tensor> ManyWorks::result()
{
    return outputs_;
}

// Their streams are one or a few, and the last one's future stands for the last only: the
// current stream is put behind all of them first.
c10::intrusive_ptr<c10::ivalue::Future> ManyWorks::getFuture()
{
    TORCH_CHECK(!all_.empty(), "simccl: nothing was called between start and end");
    auto future = c10::make_intrusive<c10::ivalue::Future>(
        c10::ListType::create(c10::TensorType::get()),
        std::vector<c10::Device>{
            c10::Device(DEVICE, static_cast<c10::DeviceIndex>(usc_sim_device()))});
    for (const auto &w : all_)
        usc_glue::block_stream(*w);
    future->markCompleted(at::IValue(outputs_));
    return future;
}

} // namespace usc_simccl
