// SPDX-License-Identifier: Apache-2.0
// What the files of this folder share: simccl.cpp is the backend as torch.distributed sees
// it, work.cpp how its calls run on streams and what stands for one that is under way,
// timer.cpp what DDP's statistics ask.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <ulpscope_sim/ccl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace usc_simccl
{

constexpr c10::DeviceType DEVICE = c10::DeviceType::PrivateUse1;

int usc_sim_device(); // the current one

class Group;

// What is known of a call; shared by who runs it and who waits for it.
struct Progress {
    std::atomic<bool> ended{false};
    usc_status status = USC_OK; // these three once it has ended
    std::string text;
    int source = -1; // of a message, who sent it
};

// One call on its way to a stream.
struct Job {
    std::shared_ptr<Group> group; // outlives the backend where work is under way
    std::shared_ptr<Progress> progress = std::make_shared<Progress>();
    std::string name; // "simccl::all_reduce"
    usc_ccl_kind kind = USC_CCL_BARRIER;
    usc_ccl_op op = USC_CCL_OP_SUM;
    usc_dtype dtype = USC_DTYPE_NONE;
    int root = 0;
    std::vector<usc_ccl_buffer> from, to;
    bool is_message = false; // to or from `peer`
    int peer = 0, tag = 0;
    usc_sim_stream launched_on{0, 0}; // who is told where it fails
    std::vector<const void *> pinned;
    ~Job();
};

// A communicator and its streams.
class Group : public std::enable_shared_from_this<Group>
{
  public:
    explicit Group(const usc_ccl_options &options); // waits for all ranks
    ~Group();
    Group(const Group &) = delete;
    Group &operator=(const Group &) = delete;

    usc_ccl *ccl = nullptr;
    usc_sim_stream collectives(int device);
    usc_sim_stream messages(int device, int peer, bool sends);
    c10::intrusive_ptr<c10d::Work> launch(std::unique_ptr<Job> job, usc_sim_stream stream,
                                          int device,
                                          const std::vector<at::Tensor> &touched,
                                          const std::vector<at::Tensor> &outputs,
                                          int rank, c10d::OpType type, bool host_waits);
    void settle(); // waits for all that was launched

  private:
    std::mutex mutex_;
    std::vector<usc_sim_stream> used_;
    std::map<std::pair<int, bool>, usc_sim_stream> of_messages_;
    bool has_collectives_ = false;
    usc_sim_stream of_collectives_{0, 0};
};

// Several calls that are waited for at once.
class ManyWorks final : public c10d::Work
{
  public:
    ManyWorks(int rank, c10d::OpType type,
              std::vector<c10::intrusive_ptr<c10d::Work>> all,
              std::vector<at::Tensor> outputs);
    bool isCompleted();
    bool isSuccess() const;
    void synchronize();
    bool wait(std::chrono::milliseconds timeout);
    std::vector<at::Tensor> result();
    c10::intrusive_ptr<c10::ivalue::Future> getFuture();

  private:
    std::vector<c10::intrusive_ptr<c10d::Work>> all_;
    std::vector<at::Tensor> outputs_;
};

} // namespace usc_simccl
