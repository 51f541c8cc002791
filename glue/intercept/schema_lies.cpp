// SPDX-License-Identifier: Apache-2.0
// Operators that write arguments which their schema calls read-only. A missing row is
// found by a capture with ULPSCOPE_CAPTURE_DEBUG=1, which notes it as "schema-lie".
#include "intercept.h"

#include <string_view>

namespace intercept
{

namespace
{

struct Lie {
    std::string_view op; /* without overload */
    std::string_view argument;
    std::string_view evidence;
};

constexpr std::string_view batch_norm =
    "running statistics are updated in place when training; the annotated successor is "
    "_native_batch_norm_legit";
constexpr std::string_view c10d = "the trailing underscore is the only mark: "
                                  "ProcessGroup writes the tensors it is given";

constexpr std::string_view copy_in =
    "its kernel copies the shards into a narrow of all_gather_output, of which it "
    "returns "
    "views (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py)";

constexpr std::string_view wait =
    "the collective writes its tensor until the wait returns";

constexpr Lie lies[] = {
    {"aten::native_batch_norm", "running_mean", batch_norm},
    {"aten::native_batch_norm", "running_var", batch_norm},
    {"aten::cudnn_batch_norm", "running_mean", batch_norm},
    {"aten::cudnn_batch_norm", "running_var", batch_norm},
    {"aten::miopen_batch_norm", "running_mean", batch_norm},
    {"aten::miopen_batch_norm", "running_var", batch_norm},
    {"aten::batch_norm_update_stats", "running_mean", batch_norm},
    {"aten::batch_norm_update_stats", "running_var", batch_norm},
    {"aten::batch_norm_gather_stats", "running_mean", batch_norm},
    {"aten::batch_norm_gather_stats", "running_var", batch_norm},
    {"aten::batch_norm_gather_stats_with_counts", "running_mean", batch_norm},
    {"aten::batch_norm_gather_stats_with_counts", "running_var", batch_norm},
    {"c10d::allreduce_", "tensors", c10d},
    {"c10d::allreduce_coalesced_", "tensors", c10d},
    {"c10d::reduce_", "tensors", c10d},
    {"c10d::broadcast_", "tensors", c10d},
    {"c10d::recv_", "tensors", c10d},
    {"c10d::recv_any_source_", "tensors", c10d},
    {"c10d::allgather_", "output_tensors", c10d},
    {"c10d::allgather_coalesced_", "output_lists", c10d},
    {"c10d::_allgather_base_", "output_tensor", c10d},
    {"c10d::allgather_into_tensor_coalesced_", "outputs", c10d},
    {"c10d::gather_", "output_tensors", c10d},
    {"c10d::scatter_", "output_tensors", c10d},
    {"c10d::reduce_scatter_", "output_tensors", c10d},
    {"c10d::_reduce_scatter_base_", "output_tensor", c10d},
    {"c10d::reduce_scatter_tensor_coalesced_", "outputs", c10d},
    {"c10d::alltoall_", "output_tensors", c10d},
    {"c10d::alltoall_base_", "output", c10d},
    {"_c10d_functional::wait_tensor", "tensor", wait},
    {"fsdp::all_gather_copy_in", "all_gather_output", copy_in},
};

} // namespace

bool schema_hides_write(const std::string &base_name, const std::string &argument)
{
    TORCH_INTERNAL_ASSERT(base_name.find('.') == std::string::npos); /* no overload */
    for (const Lie &lie : lies)
        if (lie.op == base_name && lie.argument == argument) return true;
    return false;
}

} // namespace intercept
