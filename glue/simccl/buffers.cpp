// SPDX-License-Identifier: Apache-2.0
// What simccl needs to know of tensors: buffers.h.
#include "buffers.h"

#include "simccl.h"

#include "../older.h"

namespace usc_simccl
{

using c10d::ReduceOp;

void Buffers::add(const at::Tensor &t)
{
    TORCH_CHECK(t.device().type() == DEVICE,
                "simccl moves tensors of sim; this one is on ", t.device(),
                ": for others name a backend beside it, e.g. "
                "init_process_group(\"cpu:gloo,sim:simccl\")");
    TORCH_CHECK(t.layout() == c10::kStrided && t.is_non_overlapping_and_dense(),
                "Tensors must be contiguous");
    add(t, 0, t.nbytes());
}

void Buffers::add(const at::Tensor &t, size_t at, size_t size)
{
    TORCH_INTERNAL_ASSERT(at + size <= t.nbytes());
    char *data = size > 0 ? static_cast<char *>(t.data_ptr()) + at : nullptr;
    list.push_back({data, size});
    tensors.push_back(t);
}

void Buffers::add_parts(const at::Tensor &t, int n)
{
    Buffers whole;
    whole.add(t);
    for (int i = 0; i < n; i++)
        add(t, t.nbytes() / static_cast<size_t>(n) * static_cast<size_t>(i),
            t.nbytes() / static_cast<size_t>(n));
}

usc_ccl_op op_of(const ReduceOp &op)
{
    switch (static_cast<ReduceOp::RedOpType>(op)) {
    case ReduceOp::SUM:
        return USC_CCL_OP_SUM;
    case ReduceOp::AVG:
        return USC_CCL_OP_AVG;
    case ReduceOp::PRODUCT:
        return USC_CCL_OP_PRODUCT;
    case ReduceOp::MIN:
        return USC_CCL_OP_MIN;
    case ReduceOp::MAX:
        return USC_CCL_OP_MAX;
    case ReduceOp::BAND:
        return USC_CCL_OP_BAND;
    case ReduceOp::BOR:
        return USC_CCL_OP_BOR;
    case ReduceOp::BXOR:
        return USC_CCL_OP_BXOR;
    default:
        TORCH_CHECK(false, "simccl: there is no such reduction (PREMUL_SUM is not "
                           "there: multiply before you sum)");
    }
}

usc_dtype dtype_of(const at::Tensor &t)
{
    const at::ScalarType type = c10::isComplexType(t.scalar_type())
                                    ? c10::toRealValueType(t.scalar_type())
                                    : t.scalar_type();
    return usc_dtype_by_name(usc_glue::dtype_names(type).first.c_str());
}

// Complex numbers are added up, and averaged, as pairs.
usc_dtype reduced_dtype_of(const at::Tensor &t, const ReduceOp &op)
{
    const auto which = static_cast<ReduceOp::RedOpType>(op);
    TORCH_CHECK(!t.is_complex() || which == ReduceOp::SUM || which == ReduceOp::AVG,
                "simccl: of complex tensors there is the sum and the average");
    const usc_dtype dtype = dtype_of(t);
    TORCH_CHECK(dtype != USC_DTYPE_NONE, "simccl: cannot reduce tensors of dtype ",
                t.dtype());
    return dtype;
}

} // namespace usc_simccl
