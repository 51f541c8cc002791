// SPDX-License-Identifier: Apache-2.0
// The arguments of a call: what is read, is written as JSON that is read as the same, and
// told in one line.
#include "fuzz.h"

#include <ulpscope/x/writing.h>

static char *text_of(const char *data, size_t size)
{
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_arguments given;
    usc_error err;
    usc_writing once = {0}, twice = {0};
    char line[400];
    char *text = text_of((const char *)data, size);
    const usc_status st = usc_arguments_read(text, &given, &err);
    fuzz_said(st, &err);
    FUZZ_REQUIRE(st == USC_OK || given.n == 0);
    if (st == USC_OK) {
        const char *first = usc_writing_arguments(&once, &given);
        FUZZ_REQUIRE(first != NULL);
        usc_arguments_free(&given);
        FUZZ_REQUIRE(usc_arguments_read(first, &given, &err) == USC_OK);
        const char *second = usc_writing_arguments(&twice, &given);
        FUZZ_REQUIRE(second != NULL && strcmp(first, second) == 0);
    }
    const usc_call call = {.op = "aten::add", .args = text};
    FUZZ_REQUIRE(usc_call_summary(&call, line, sizeof line, &err) == USC_OK);
    usc_arguments_free(&given);
    usc_writing_free(&once);
    usc_writing_free(&twice);
    free(text);
    return 0;
}
