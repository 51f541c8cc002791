// SPDX-License-Identifier: Apache-2.0
// What simccl needs to know of tensors: where they lie, and how they are added up.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <ulpscope_sim/ccl.h>

#include <vector>

namespace usc_simccl
{

// Buffers of one call, and the tensors that they lie in.
struct Buffers {
    std::vector<usc_ccl_buffer> list;
    std::vector<at::Tensor> tensors;

    void add(const at::Tensor &t); // raises where it is none of the device's, or has gaps
    void add(const at::Tensor &t, size_t at, size_t size);
    void add_parts(const at::Tensor &t, int n); // equal ones, for each rank one
};

// How numbers become one; raises where simccl has no such reduction.
usc_ccl_op op_of(const c10d::ReduceOp &op);
// The library's own names are torch's; NONE where there is no such dtype.
usc_dtype dtype_of(const at::Tensor &t);
// The same of a reduction, which complex numbers take part in as pairs.
usc_dtype reduced_dtype_of(const at::Tensor &t, const c10d::ReduceOp &op);

} // namespace usc_simccl
