// SPDX-License-Identifier: Apache-2.0
// One reducing collective of half-precision tensors, run in float32 and rounded once,
// when it has completed. A torch without c10d has none of these operators.
#include "reroute.h"

#if defined(USE_DISTRIBUTED) || __has_include(<torch/csrc/distributed/c10d/Work.hpp>)
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#define HAS_C10D 1
#endif

namespace intercept
{

#ifdef HAS_C10D
namespace
{

bool is_half(const at::Tensor &t)
{
    return t.scalar_type() == at::kHalf || t.scalar_type() == at::kBFloat16;
}

at::ScalarType widened(const at::Tensor &t)
{
    return is_half(t) ? at::kFloat : t.scalar_type();
}

/* What reduces by rounding; a minimum is exact in any precision. */
bool rounds(const IValue &value)
{
    try {
        if (!value.isCustomClass()) return false;
        const auto op = value.toCustomClass<c10d::ReduceOp>();
        return op->op_ == c10d::ReduceOp::SUM || op->op_ == c10d::ReduceOp::AVG ||
               op->op_ == c10d::ReduceOp::PRODUCT ||
               op->op_ == c10d::ReduceOp::PREMUL_SUM;
    } catch (const std::exception &) { /* an object of another class */
        return false;
    }
}

/* The Work of the collective in float32; the results are rounded into the caller's
 * tensors behind its end, by whoever is told of that first. */
class RoundedWork : public c10d::Work
{
  public:
    RoundedWork(c10::intrusive_ptr<c10d::Work> inner, Mirrors mirrors,
                std::vector<at::Tensor> results)
        : Work(-1, inner->retrieveOpType()), inner_(std::move(inner)),
          mirrors_(std::move(mirrors)), results_(std::move(results))
    {
    }

    bool isCompleted() override
    {
        if (!inner_->isCompleted()) return false;
        if (inner_->isSuccess()) {
            inner_->synchronize();
            settle();
        }
        return true;
    }
    bool isSuccess() const override
    {
        return inner_->isSuccess();
    }
    std::exception_ptr exception() const override
    {
        return inner_->exception();
    }
    int sourceRank() const override
    {
        return inner_->sourceRank();
    }
    std::vector<at::Tensor> result() override
    {
        return results_;
    }
    void synchronize() override
    {
        inner_->synchronize();
        settle();
    }
    bool wait(std::chrono::milliseconds timeout) override
    {
        const bool done = inner_->wait(timeout);
        if (done) settle();
        return done;
    }
    void blockCurrentStream() /* overrides where there is one */
    {
        usc_glue::block_stream(*inner_);
        settle();
    }
    void abort() override
    {
        inner_->abort();
    }
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        const std::lock_guard<std::mutex> lock(once_);
        if (future_) return future_;
        auto self = c10::intrusive_ptr<RoundedWork>::reclaim_copy(this);
        future_ = inner_->getFuture()->then(
            [self](c10::ivalue::Future &of) {
                (void)of.value(); /* throws what the collective failed with */
                self->write();
                return IValue(self->results_);
            },
            c10::ListType::ofTensors());
        return future_;
    }
    float getDuration() const override
    {
        return inner_->getDuration();
    }
    uint64_t getSequencenumber() const /* overrides where there is one */
    {
        return older::sequence_of(*inner_, 0);
    }

  private:
    void settle()
    {
        c10::intrusive_ptr<c10::ivalue::Future> future;
        {
            const std::lock_guard<std::mutex> lock(once_);
            future = future_;
        }
        if (future)
            future->waitAndThrow(); /* this thread's stream comes after the writing */
        else
            write();
    }
    void write()
    {
        const std::lock_guard<std::mutex> lock(writing_);
        if (written_) return;
        written_ = true;
        at::AutoDispatchBelowADInplaceOrView below;
        mirrors_.write_back();
    }

    c10::intrusive_ptr<c10d::Work> inner_;
    Mirrors mirrors_;
    std::vector<at::Tensor> results_;
    std::mutex once_, writing_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
    bool written_ = false;
};

c10::intrusive_ptr<c10d::Work> work_in(const IValue &value)
{
    try {
        return value.isCustomClass() ? value.toCustomClass<c10d::Work>()
                                     : c10::intrusive_ptr<c10d::Work>();
    } catch (const std::exception &) { /* an object of another class */
        return {};
    }
}

} // namespace

bool is_reduction(const Target &target, const IValue *values)
{
    bool half = false, reduces = false;
    for (size_t i = 0; i < target.op.arguments.size(); ++i) {
        reduces = reduces || rounds(values[i]);
        each_tensor(values[i], [&](const at::Tensor &t) {
            half = half || (is_half(t) && t.layout() == at::kStrided);
        });
    }
    return half && reduces;
}

/* An error reaches the program as it is: a collective cannot be tried again. */
void run_collective(const Target &target, const Covered &covered, DispatchKeySet keys,
                    Stack *stack)
{
    const size_t n = target.op.arguments.size();
    TORCH_INTERNAL_ASSERT(stack->size() >= n);
    Stack moved(stack->end() - static_cast<std::ptrdiff_t>(n), stack->end());
    std::vector<at::Tensor> results;
    for (size_t i = 0; i < n; ++i)
        if (target.op.arguments[i].written)
            each_tensor(moved[i], [&](const at::Tensor &t) { results.push_back(t); });
    Mirrors mirrors(false, widened);
    mirrors.take(target, moved.data());
    covered(target.op.handle, keys, &moved);

    stack->resize(stack->size() - n);
    bool waits = false;
    const Mirrors &seen = mirrors;
    for (const IValue &v : moved) {
        const auto work = work_in(v);
        waits = waits || work;
        stack->push_back(
            work ? IValue(c10::static_intrusive_pointer_cast<c10d::Work>(
                       c10::make_intrusive<RoundedWork>(work, mirrors, results)))
                 : with_tensors(v, [&](const at::Tensor &t) {
                       return seen.result(t, c10::Device(at::kCPU), std::nullopt);
                   }));
    }
    if (!waits) mirrors.write_back(); /* it has completed, or is in the stream's order */
}
#else
bool is_reduction(const Target &, const IValue *)
{
    return false;
}

void run_collective(const Target &target, const Covered &covered, DispatchKeySet keys,
                    Stack *stack)
{
    covered(target.op.handle, keys, stack);
}
#endif

} // namespace intercept
