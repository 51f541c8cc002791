// SPDX-License-Identifier: Apache-2.0
// Where a drawn tensor lies. Neighbour: fuzz_draw.c, which draws which layout.
#ifndef USC_FUZZ_LAY_H
#define USC_FUZZ_LAY_H

#include <ulpscope/x/fuzz.h>

typedef enum layout {
    AS_EXAMPLE = 0, /* and up to 6 */
    ROW_MAJOR = 7,
    TRANSPOSED = 8,
    CHANNELS_LAST,
    REVERSED,
    EVERY_SECOND,
    ROWS_APART,
    WITH_OFFSET,
    EXPANDED,
    N_LAYOUTS
} layout;

/** Sets the strides of a layout, and room: `before` in front of the first element,
 * `behind` the last. `flat`: an axis that repeats itself; -1: none.
 * Errors: USC_E_RANGE where sizes overflow. */
USC_NODISCARD usc_status usc_fuzz_lay(usc_fuzz_tensor *t, layout kind, int64_t before,
                                      int64_t behind, int flat, usc_error *err);

#endif
