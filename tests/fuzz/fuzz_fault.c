// SPDX-License-Identifier: Apache-2.0
// The text of faults to plant on the simulated device, and lines of JSON.
#include "fuzz.h"

#include <ulpscope_sim/sim.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_error err;
    usc_sim_fault fault;
    int64_t first;
    char *text = malloc(size + 1);
    FUZZ_REQUIRE(text != NULL);
    if (size > 0) memcpy(text, data, size);
    text[size] = '\0';
    const bool taken = fuzz_taken, lines = text[0] == '{';
    const bool names_a_file = strchr(text, '@') != NULL; /* of this machine */
    const usc_status st = names_a_file ? USC_OK : usc_sim_fault_plant(text, &first, &err);
    fuzz_said(st, &err);
    if (lines) fuzz_taken = taken; /* it is to be sound as what it is */
    for (size_t i = 0; usc_sim_fault_get(i, &fault); i++)
        FUZZ_REQUIRE(strlen(fault.text) < sizeof fault.text);
    usc_sim_fault_clear();
    const bool as_text = fuzz_taken;
    fuzz_said(usc_sim_fault_plant_lines(text, "lines", &first, &err), &err);
    if (!lines) fuzz_taken = as_text;
    usc_sim_fault_clear();
    free(text);
    return 0;
}
