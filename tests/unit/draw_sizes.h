// SPDX-License-Identifier: Apache-2.0
// How many numbers, seeds and categories the tests of draws take.
#ifndef USC_TESTS_DRAW_SIZES_H
#define USC_TESTS_DRAW_SIZES_H

#include "alloc_probe.h"
#include "draw_stream.h"

#include <ulpscope/x/draw.h>

#include "draw/draw_special.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { N = 2048, N_SEEDS = 200, N_ROWS = 16, N_CATEGORIES = 50 };

#endif
