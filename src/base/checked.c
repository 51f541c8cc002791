// SPDX-License-Identifier: Apache-2.0
// Overflow-checked arithmetic; the contracts stand in checked.h.
#include "base/checked.h"

#include "base/compiler.h"

bool usc_add_i64(int64_t a, int64_t b, int64_t *out)
{
    if (!USC_ADD_OVERFLOWS(a, b, out)) return true;
    *out = 0;
    return false;
}

bool usc_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    if (!USC_MUL_OVERFLOWS(a, b, out)) return true;
    *out = 0;
    return false;
}
