// SPDX-License-Identifier: Apache-2.0
// Fast sums by what every processor of the kind has; see fast.h.
#define LANES 4
#define NAME "scalar"
#define TABLE usc_sim_fast_base
#include "fast_lanes.h"
