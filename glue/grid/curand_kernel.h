// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name: the functions for kernels.
#pragma once
#include "grid_random.h"
