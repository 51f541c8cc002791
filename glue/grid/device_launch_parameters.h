// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name, for the simulated device.
#pragma once
#include "cuda_runtime.h"
