// SPDX-License-Identifier: Apache-2.0
// A JSON value: what is read, prints as JSON that reads as the same.
#include "fuzz.h"

#include "json/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_json *root, *again;
    usc_error err;
    usc_arena arena = {.alloc = usc_libc_alloc};
    const usc_status st =
        usc_json_parse((const char *)data, size, "x", "no JSON", &root, &err);
    fuzz_said(st, &err);
    if (st != USC_OK) return 0;
    const char *text = usc_json_print(root, &arena);
    bool valid = false;
    FUZZ_REQUIRE(text != NULL && usc_json_valid(text, &valid, &err) == USC_OK && valid);
    FUZZ_REQUIRE(usc_json_parse(text, strlen(text), "x", "no JSON", &again, &err) ==
                 USC_OK);
    const char *second = usc_json_print(again, &arena);
    FUZZ_REQUIRE(second != NULL && strcmp(text, second) == 0);
    usc_json_free(again);
    usc_json_free(root);
    usc_arena_free(&arena);
    return 0;
}
