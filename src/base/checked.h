// SPDX-License-Identifier: Apache-2.0
// Sums and products of sizes that say when they do not fit. Every size that came from
// outside goes through these.
#ifndef USC_BASE_CHECKED_H
#define USC_BASE_CHECKED_H

#include <ulpscope/api.h>

/** `*out = a + b` and true, or false and `*out` 0 where the sum does not fit. */
USC_NODISCARD bool usc_add_i64(int64_t a, int64_t b, int64_t *out);

/** `*out = a * b` and true, or false and `*out` 0 where the product does not fit. */
USC_NODISCARD bool usc_mul_i64(int64_t a, int64_t b, int64_t *out);

#endif
