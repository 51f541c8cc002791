// SPDX-License-Identifier: Apache-2.0
// Rows of a watched run under another scale.
#ifndef USC_TESTS_WATCH_SCALE_H
#define USC_TESTS_WATCH_SCALE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <ulpscope/x/watch_products.h>

#include "watch_run.h"

static inline void scale(usc_watch_row *row, double factor)
{
    row->max_abs *= factor;
    row->sum_abs *= factor;
    row->sum_sq *= factor * factor;
}

#endif
