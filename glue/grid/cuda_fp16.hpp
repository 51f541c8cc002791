// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name, for the simulated device.
#pragma once
#include "grid_half.h"
