// SPDX-License-Identifier: Apache-2.0
// An operator pattern, a line break, and a name that is held against it.
#include "fuzz.h"

#include <ulpscope/x/pattern.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_error err;
    char *text = malloc(size + 2);
    FUZZ_REQUIRE(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = text[size + 1] = '\0';
    char *name = strchr(text, '\n');
    if (name != NULL) *name++ = '\0';
    fuzz_said(usc_pattern_check(text, &err), &err);
    (void)usc_pattern_match(text, name != NULL ? name : "aten::mm");
    FUZZ_REQUIRE(usc_pattern_match(NULL, name != NULL ? name : ""));
    free(text);
    return 0;
}
