// SPDX-License-Identifier: Apache-2.0
// A file of defaults: what is heard is within its bounds, what is refused has a reason.
#include "fuzz.h"

#include <ulpscope/x/toml.h>

static bool hear(const usc_toml_value *v, void *ctx)
{
    int *last = ctx;
    FUZZ_REQUIRE(v->text != NULL && v->line >= *last && v->n_keys > 0);
    for (int i = 0; i < v->n_keys && i < USC_TOML_MOST_KEYS; i++)
        FUZZ_REQUIRE(memchr(v->keys[i], '\0', USC_TOML_LONGEST_KEY) != NULL);
    *last = v->line;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int line = 0, last = 1;
    char why[128];
    char *copy = malloc(size + 1); /* a read beyond the end is seen */
    FUZZ_REQUIRE(copy != NULL);
    memcpy(copy, data, size);
    const bool taken = usc_toml_read(copy, size, hear, &last, &line, why);
    FUZZ_REQUIRE(line >= 1 && taken == (why[0] == '\0'));
    fuzz_taken = fuzz_taken && taken;
    free(copy);
    return 0;
}
