// SPDX-License-Identifier: Apache-2.0
// The header of a .npy file: what is taken lies within the file, element by element.
#include "fuzz.h"

#include <ulpscope/x/npy.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_npy_header h;
    usc_error err;
    const usc_status st = usc_npy_read(data, (int64_t)size, (int64_t)size, "x", &h, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return 0;
    usc_tensor t = h.tensor;
    int64_t bytes, below;
    t.dtype = USC_U8;
    FUZZ_REQUIRE(usc_tensor_extent(&t, &bytes, &below, &err) == USC_OK && below == 0);
    FUZZ_REQUIRE(h.first >= 0 && bytes * h.item_size <= (int64_t)size - h.first);
    return 0;
}
