// SPDX-License-Identifier: Apache-2.0
// cub's header of that name: all of cub lies in one here.
#pragma once
#include "../../grid_cub_device.h"
