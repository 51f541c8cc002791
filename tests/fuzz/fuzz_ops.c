// SPDX-License-Identifier: Apache-2.0
// A file of operators out of any bytes: it is refused with a sentence, or its problems are
// told, or C++ is written; as a device's file, and as torch's.
#include "fuzz.h"

#include <ulpscope/x/ops.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_ops_result *r;
    usc_error err;
    const char *path = fuzz_file("ops.yaml", data, size);
    const usc_ops_options o = {.native = path, .lenient = size % 2 == 1};
    const usc_status st = usc_ops_check(path, &o, &r, &err);
    fuzz_said(st, &err);
    FUZZ_REQUIRE((st == USC_OK) == (r != NULL));
    usc_ops_free(r);
    return 0;
}
