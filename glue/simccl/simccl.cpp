// SPDX-License-Identifier: Apache-2.0
// simccl as a backend of torch.distributed: a communicator (ulpscope_sim/ccl.h) behind
// c10d::Backend. A call is put on a stream of the communicator's own, behind what the
// current stream has to run; wait() puts the current stream behind the call, and the host
// waits only where launches are in step, where a time limit is given, and in barrier().
#include "simccl.h"
#include "../torch_private_ranks.h"
#include "buffers.h"

#include <torch/csrc/utils/pybind.h>

#include <cmath>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace usc_simccl
{
namespace
{

using c10d::ReduceOp;
using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

int64_t to_ns(milliseconds t)
{
    return t.count() <= 0 ? 0 : static_cast<int64_t>(t.count()) * 1000000;
}

const at::Tensor &only(const Tensors &list)
{
    TORCH_CHECK(list.size() == 1, "Expecting one tensor only but got ", list.size());
    return list[0];
}

void check_parts(size_t given, int size, const char *what)
{
    TORCH_CHECK(given == static_cast<size_t>(size), "simccl: ", what, " takes a list of ",
                size, " tensors, one for each rank, but got ", given);
}

void check_same_dtype(const at::Tensor &a, const at::Tensor &b)
{
    TORCH_CHECK(a.scalar_type() == b.scalar_type(),
                "output tensor must have the same type as input tensor");
}

// ---- the backend

class SimCcl final : public c10d::Backend
{
  public:
    SimCcl(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
           milliseconds timeout)
        : c10d::Backend(rank, size), timeout_(timeout)
    {
        usc_ccl_options o{};
        const std::string key = "simccl";
        if (rank == 0) {
            usc_ccl_new_name(o.name);
            store->set(key, std::string(o.name));
        } else {
            const std::string name = store->get_to_str(key);
            std::strncpy(o.name, name.c_str(), sizeof o.name - 1);
        }
        o.rank = rank;
        o.size = size;
        o.timeout_ns = to_ns(timeout);
        group_ = std::make_shared<Group>(o);
    }

    const std::string getBackendName() const
    {
        return "simccl";
    }
    c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions()
    {
        return c10::make_intrusive<c10d::Backend::Options>("simccl", timeout_);
    }
    void setTimeout(milliseconds timeout)
    {
        timeout_ = timeout;
        usc_ccl_set_timeout(group_->ccl, to_ns(timeout));
    }

    // ---- one tensor each

    WorkPtr broadcast(Tensors &tensors, const c10d::BroadcastOptions &opts)
    {
        const at::Tensor &t = only(tensors);
        Call call(USC_CCL_BROADCAST, c10d::OpType::BROADCAST, opts.rootRank);
        if (rank_ == opts.rootRank) call.from.add(t);
        call.to.add(t);
        return launch(std::move(call), {t});
    }
    WorkPtr allreduce(Tensors &tensors, const c10d::AllreduceOptions &opts)
    {
        const at::Tensor &t = only(tensors);
        Call call(USC_CCL_ALL_REDUCE, c10d::OpType::ALLREDUCE, 0);
        call.reduces(opts.reduceOp, t);
        call.from.add(t);
        call.to.add(t);
        return launch(std::move(call), {t});
    }
    WorkPtr reduce(Tensors &tensors, const c10d::ReduceOptions &opts)
    {
        const at::Tensor &t = only(tensors);
        Call call(USC_CCL_REDUCE, c10d::OpType::REDUCE, opts.rootRank);
        call.reduces(opts.reduceOp, t);
        call.from.add(t);
        if (rank_ == opts.rootRank) call.to.add(t);
        return launch(std::move(call), {t});
    }

    // ---- one for each rank

    WorkPtr allgather(std::vector<Tensors> &outputs, Tensors &inputs,
                      const c10d::AllgatherOptions &)
    {
        TORCH_CHECK(outputs.size() == 1, "Expecting one list of outputs");
        check_parts(outputs[0].size(), size_, "all_gather");
        Call call(USC_CCL_ALL_GATHER, c10d::OpType::ALLGATHER, 0);
        call.from.add(only(inputs));
        for (const at::Tensor &t : outputs[0]) {
            check_same_dtype(t, inputs[0]);
            call.to.add(t);
        }
        return launch(std::move(call), outputs[0]);
    }
    WorkPtr _allgather_base(at::Tensor &output, at::Tensor &input,
                            const c10d::AllgatherOptions &)
    {
        check_same_dtype(output, input);
        TORCH_CHECK(input.numel() * size_ == output.numel(),
                    "output tensor size must be equal to world_size times input tensor "
                    "size");
        Call call(USC_CCL_ALL_GATHER, usc_glue::ALL_GATHER_INTO_ONE, 0);
        call.from.add(input);
        call.to.add_parts(output, size_);
        return launch(std::move(call), {output});
    }
    WorkPtr gather(std::vector<Tensors> &outputs, Tensors &inputs,
                   const c10d::GatherOptions &opts)
    {
        Call call(USC_CCL_GATHER, c10d::OpType::GATHER, opts.rootRank);
        call.from.add(only(inputs));
        if (rank_ == opts.rootRank) {
            TORCH_CHECK(outputs.size() == 1, "Expecting one list of outputs on the root");
            check_parts(outputs[0].size(), size_, "gather");
            for (const at::Tensor &t : outputs[0]) {
                check_same_dtype(t, inputs[0]);
                call.to.add(t);
            }
        }
        return launch(std::move(call), outputs.empty() ? Tensors{} : outputs[0]);
    }
    WorkPtr scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                    const c10d::ScatterOptions &opts)
    {
        Call call(USC_CCL_SCATTER, c10d::OpType::SCATTER, opts.rootRank);
        if (rank_ == opts.rootRank) {
            TORCH_CHECK(inputs.size() == 1, "Expecting one list of inputs on the root");
            check_parts(inputs[0].size(), size_, "scatter");
            for (const at::Tensor &t : inputs[0]) {
                check_same_dtype(t, only(outputs));
                call.from.add(t);
            }
        }
        call.to.add(only(outputs));
        return launch(std::move(call), outputs);
    }
    WorkPtr reduce_scatter(Tensors &outputs, std::vector<Tensors> &inputs,
                           const c10d::ReduceScatterOptions &opts)
    {
        TORCH_CHECK(inputs.size() == 1, "Expecting one list of inputs");
        check_parts(inputs[0].size(), size_, "reduce_scatter");
        Call call(USC_CCL_REDUCE_SCATTER, c10d::OpType::REDUCE_SCATTER, 0);
        call.reduces(opts.reduceOp, only(outputs));
        for (const at::Tensor &t : inputs[0]) {
            check_same_dtype(t, outputs[0]);
            call.from.add(t);
        }
        call.to.add(outputs[0]);
        return launch(std::move(call), outputs);
    }
    WorkPtr _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                 const c10d::ReduceScatterOptions &opts)
    {
        check_same_dtype(output, input);
        TORCH_CHECK(output.numel() * size_ == input.numel(),
                    "input tensor must be the same size as output size times world size");
        Call call(USC_CCL_REDUCE_SCATTER, usc_glue::REDUCE_SCATTER_FROM_ONE, 0);
        call.reduces(opts.reduceOp, output);
        call.from.add_parts(input, size_);
        call.to.add(output);
        return launch(std::move(call), {output});
    }
    WorkPtr alltoall(Tensors &outputs, Tensors &inputs, const c10d::AllToAllOptions &)
    {
        check_parts(inputs.size(), size_, "all_to_all");
        check_parts(outputs.size(), size_, "all_to_all");
        Call call(USC_CCL_ALL_TO_ALL, c10d::OpType::ALLTOALL, 0);
        for (const at::Tensor &t : inputs)
            call.from.add(t);
        for (const at::Tensor &t : outputs)
            call.to.add(t);
        return launch(std::move(call), outputs);
    }
    WorkPtr alltoall_base(at::Tensor &output, at::Tensor &input,
                          std::vector<int64_t> &output_splits,
                          std::vector<int64_t> &input_splits,
                          const c10d::AllToAllOptions &)
    {
        check_same_dtype(output, input);
        Call call(USC_CCL_ALL_TO_ALL, c10d::OpType::ALLTOALL_BASE, 0);
        add_split(call.from, input, input_splits);
        add_split(call.to, output, output_splits);
        return launch(std::move(call), {output});
    }
    WorkPtr barrier(const c10d::BarrierOptions &)
    {
        Call call(USC_CCL_BARRIER, c10d::OpType::BARRIER, 0);
        call.host_waits = true;
        return launch(std::move(call), {});
    }

    // ---- many at once

    WorkPtr allreduce_coalesced(Tensors &tensors,
                                const c10d::AllreduceCoalescedOptions &opts)
    {
        std::vector<WorkPtr> all;
        for (at::Tensor &t : tensors) {
            Tensors one{t};
            all.push_back(allreduce(one, opts));
        }
        return together(std::move(all), c10d::OpType::ALLREDUCE_COALESCED, tensors);
    }
    WorkPtr allgather_coalesced(std::vector<Tensors> &outputs, Tensors &inputs,
                                const c10d::AllgatherOptions &opts)
    {
        std::vector<WorkPtr> all;
        for (size_t i = 0; i < inputs.size(); i++) {
            // outputs[rank][tensor]
            std::vector<Tensors> out(1);
            for (const Tensors &of_rank : outputs)
                out[0].push_back(of_rank.at(i));
            Tensors in{inputs[i]};
            all.push_back(allgather(out, in, opts));
        }
        return together(std::move(all), c10d::OpType::COALESCED, {});
    }
    WorkPtr allgather_into_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::AllgatherOptions &opts)
    {
        std::vector<WorkPtr> all;
        for (size_t i = 0; i < inputs.size(); i++)
            all.push_back(_allgather_base(outputs.at(i), inputs[i], opts));
        return together(std::move(all), c10d::OpType::COALESCED, outputs);
    }
    WorkPtr reduce_scatter_tensor_coalesced(Tensors &outputs, Tensors &inputs,
                                            const c10d::ReduceScatterOptions &opts)
    {
        std::vector<WorkPtr> all;
        for (size_t i = 0; i < inputs.size(); i++)
            all.push_back(_reduce_scatter_base(outputs.at(i), inputs[i], opts));
        return together(std::move(all), c10d::OpType::COALESCED, outputs);
    }
    // Nothing is held back: what is called between the two runs as it comes.
    bool supportsCoalescing() const
    {
        return true;
    }
    void startCoalescing()
    {
        coalescing_ = true;
        coalesced_.clear();
    }
    WorkPtr endCoalescing()
    {
        coalescing_ = false;
        return together(std::move(coalesced_), c10d::OpType::COALESCED, {});
    }

    // ---- messages

    WorkPtr send(Tensors &tensors, int to, int tag)
    {
        return message(only(tensors), to, tag, true);
    }
    WorkPtr recv(Tensors &tensors, int from, int tag)
    {
        return message(only(tensors), from, tag, false);
    }
    WorkPtr recvAnysource(Tensors &tensors, int tag)
    {
        return message(only(tensors), -1, tag, false);
    }

    // ---- the group

    void setSequenceNumberForGroup()
    {
    }
    uint64_t getSequenceNumberForGroup()
    {
        return n_launched_;
    }
    bool supportsSplitting() const
    {
        return true;
    }
    // Ranks that are not in it give nullptr back.
    c10::intrusive_ptr<c10d::Backend>
    split(const c10::intrusive_ptr<c10d::Store> &store, const std::vector<int> &ranks,
          const c10::intrusive_ptr<c10d::Backend::Options> &opts)
    {
        const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
        if (mine == ranks.end()) return nullptr;
        return c10::make_intrusive<SimCcl>(store, static_cast<int>(mine - ranks.begin()),
                                           static_cast<int>(ranks.size()),
                                           opts ? opts->timeout : timeout_);
    }
    void abort()
    {
        const std::string why = "rank " + std::to_string(rank_) + " has aborted";
        usc_ccl_abort(group_->ccl, why.c_str());
    }
    void shutdown()
    {
        group_->settle();
    }

  private:
    struct Call {
        Call(usc_ccl_kind k, c10d::OpType t, int64_t r)
            : kind(k), type(t), root(static_cast<int>(r))
        {
        }
        void reduces(const ReduceOp &o, const at::Tensor &t)
        {
            op = op_of(o);
            dtype = reduced_dtype_of(t, o);
        }
        usc_ccl_kind kind;
        c10d::OpType type;
        int root;
        usc_ccl_op op = USC_CCL_OP_SUM;
        usc_dtype dtype = USC_DTYPE_NONE;
        Buffers from, to;
        bool host_waits = false;
    };

    void add_split(Buffers &buffers, const at::Tensor &t,
                   const std::vector<int64_t> &splits)
    {
        if (splits.empty()) {
            TORCH_CHECK(t.numel() % size_ == 0 &&
                            (t.dim() == 0 || t.size(0) % size_ == 0),
                        "Tensor's dim 0 does not divide equally across group size");
            buffers.add_parts(t, size_);
            return;
        }
        check_parts(splits.size(), size_, "all_to_all_single");
        int64_t sum = 0;
        for (const int64_t n : splits)
            sum += n;
        TORCH_CHECK(t.dim() > 0 && sum == t.size(0),
                    "Split sizes doesn't match total dim 0 size");
        Buffers whole;
        whole.add(t);
        const size_t row =
            t.size(0) > 0 ? t.nbytes() / static_cast<size_t>(t.size(0)) : 0;
        size_t at = 0;
        for (const int64_t n : splits) {
            buffers.add(t, at, row * static_cast<size_t>(n));
            at += row * static_cast<size_t>(n);
        }
    }

    WorkPtr launch(Call call, const Tensors &outputs)
    {
        auto job = std::make_unique<Job>();
        job->kind = call.kind;
        job->op = call.op;
        job->root = call.root;
        job->from = std::move(call.from.list);
        job->to = std::move(call.to.list);
        job->name = std::string("simccl::") + usc_ccl_kind_name(call.kind);
        Tensors touched = std::move(call.from.tensors);
        touched.insert(touched.end(), call.to.tensors.begin(), call.to.tensors.end());
        job->dtype = call.dtype != USC_DTYPE_NONE || touched.empty()
                         ? call.dtype
                         : dtype_of(touched[0]);
        const int device =
            touched.empty() ? usc_sim_device() : touched[0].device().index();
        n_launched_++;
        return handed_out(group_->launch(std::move(job), group_->collectives(device),
                                         device, touched, outputs, rank_, call.type,
                                         call.host_waits));
    }

    WorkPtr message(const at::Tensor &t, int peer, int tag, bool sends)
    {
        Buffers b;
        b.add(t);
        auto job = std::make_unique<Job>();
        job->peer = peer;
        job->tag = tag;
        job->is_message = true;
        (sends ? job->from : job->to) = std::move(b.list);
        job->name = sends ? "simccl::send" : "simccl::recv";
        const int device = t.device().index();
        return handed_out(group_->launch(std::move(job),
                                         group_->messages(device, peer, sends), device,
                                         {t}, {t}, rank_,
                                         sends        ? c10d::OpType::SEND
                                         : peer == -1 ? c10d::OpType::RECVANYSOURCE
                                                      : c10d::OpType::RECV,
                                         false));
    }

    WorkPtr handed_out(WorkPtr work)
    {
        if (coalescing_) coalesced_.push_back(work);
        return work;
    }

    WorkPtr together(std::vector<WorkPtr> all, c10d::OpType type, const Tensors &outputs)
    {
        return c10::make_intrusive<ManyWorks>(rank_, type, std::move(all), outputs);
    }

    std::shared_ptr<Group> group_;
    milliseconds timeout_;
    std::atomic<uint64_t> n_launched_{0};
    bool coalescing_ = false;
    std::vector<WorkPtr> coalesced_;
};

} // namespace
} // namespace usc_simccl

/// The backend of one rank, as torch.distributed asks for it; waits for all ranks. Call
/// with the GIL. NULL: a Python exception is set.
EXPORT PyObject *usc_glue_simccl_make(PyObject *store, int rank, int size,
                                      double timeout_s)
{
    TORCH_INTERNAL_ASSERT(store != nullptr);
    try {
        auto its = pybind11::handle(store).cast<c10::intrusive_ptr<c10d::Store>>();
        c10::intrusive_ptr<c10d::Backend> made;
        {
            const pybind11::gil_scoped_release others_run;
            made = c10::make_intrusive<usc_simccl::SimCcl>(
                std::move(its), rank, size,
                std::chrono::milliseconds(
                    static_cast<int64_t>(std::ceil(timeout_s * 1e3))));
        }
        return pybind11::cast(std::move(made)).release().ptr();
    } catch (const c10::Error &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what_without_backtrace());
    } catch (const std::exception &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}
