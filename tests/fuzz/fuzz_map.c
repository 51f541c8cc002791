// SPDX-License-Identifier: Apache-2.0
// A map of names out of any bytes: it is refused with a sentence, or ports.
#include "fuzz.h"

#include <ulpscope/x/port.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char code[] = "#include <a/b.h>\na::b c(cudaFree, \"cuda\");\n";
    static const char *const names[] = {"x.cu", "x.py"};
    usc_port_result *r;
    usc_error err;
    const usc_port_options o = {.map = fuzz_file("map.json", data, size)};
    for (int i = 0; i < 2; i++) {
        const usc_status st =
            usc_port_bytes(names[i], code, sizeof code - 1, &o, &r, &err);
        fuzz_said(st, &err);
        FUZZ_REQUIRE((st == USC_OK) == (r != NULL));
        usc_port_free(r);
    }
    return 0;
}
