// SPDX-License-Identifier: Apache-2.0
// Numbers for the storages of a host that plays the program.
#ifndef USC_TESTS_CAPTURE_FILL_H
#define USC_TESTS_CAPTURE_FILL_H

#include "capture_host.h"

#define N 16

static inline void fill(float *x, int n, float from)
{
    for (int i = 0; i < n; i++)
        x[i] = from + (float)i;
}

#endif
