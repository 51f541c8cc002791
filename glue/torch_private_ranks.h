// SPDX-License-Identifier: Apache-2.0
// What of c10d has private names or headers; what is without reads as torch without it.
#pragma once

#if defined(USE_DISTRIBUTED) || __has_include(<torch/csrc/distributed/c10d/Work.hpp>)
#define USC_GLUE_KNOWS_RANKS 1

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#if __has_include(<torch/csrc/distributed/c10d/GroupRegistry.hpp>)
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
/* without: no operator has a group's name among its arguments */
#define USC_GLUE_KNOWS_GROUP_NAMES 1
#endif

#if __has_include(<torch/csrc/distributed/c10d/reducer_timer.hpp>)
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>
/* without: DDP's statistics have no times of a device */
#define USC_GLUE_KNOWS_TIMERS 1
#endif

namespace usc_glue
{

/* The kinds of a Work that gathers into one tensor and scatters from one. */
constexpr c10d::OpType ALL_GATHER_INTO_ONE = c10d::OpType::_ALLGATHER_BASE;
constexpr c10d::OpType REDUCE_SCATTER_FROM_ONE = c10d::OpType::_REDUCE_SCATTER_BASE;

} // namespace usc_glue

#endif
