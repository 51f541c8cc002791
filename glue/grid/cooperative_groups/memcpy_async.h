// SPDX-License-Identifier: Apache-2.0
// CUDA's header of that name: all of it lies in one here.
#pragma once
#include "../cooperative_groups.h"
