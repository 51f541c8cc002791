// SPDX-License-Identifier: Apache-2.0
// What makes two calls alike: align.c goes by it, lists.c makes the hashes.
#ifndef USC_DIFF_ALIGN_H
#define USC_DIFF_ALIGN_H

#include <ulpscope/x/diff.h>

/** `h` with one more value in it. */
uint64_t usc_diff_mix(uint64_t h, uint64_t value);

/** How two calls are one; USC_N_DIFF_HOW: they are not. */
usc_diff_how usc_diff_how_of(const usc_diff_item *a, const usc_diff_item *b);

#endif
