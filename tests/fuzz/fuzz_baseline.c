// SPDX-License-Identifier: Apache-2.0
// A baseline file, JSON or a database, for a report on a run of one call.
#include "fuzz.h"

static void make_results(const char *out)
{
    const usc_run run = {.trace = "t",
                         .trace_id = "t",
                         .device = "cpu",
                         .standard = "ulpscope",
                         .faults = "",
                         .options = "{}",
                         .environment = "{}"};
    const usc_result_row row = {.call = 1,
                                .phase = "forward",
                                .op = "aten::mm",
                                .culprit = "",
                                .module = "",
                                .module_class = "",
                                .verdict = "wrong",
                                .cause = "",
                                .sentence = "s",
                                .notes = "",
                                .output = "out[0]",
                                .args = "x",
                                .stack = "",
                                .stands_for = 1};
    usc_result *r;
    FUZZ_REQUIRE(usc_result_create(out, &run, true, &r, NULL) == USC_OK);
    FUZZ_REQUIRE(usc_result_put(r, &row, NULL) == USC_OK);
    FUZZ_REQUIRE(usc_result_set(r, "state", "done", NULL) == USC_OK);
    usc_result_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char out[600];
    usc_report *report;
    usc_error err;
    if (out[0] == '\0') {
        snprintf(out, sizeof out, "%s/out", fuzz_folder());
        make_results(out);
    }
    const char *path = fuzz_file("baseline", data, size);
    FUZZ_REQUIRE(usc_report_open(out, NULL, &report, &err) == USC_OK);
    fuzz_said(usc_report_baseline(report, path, &err), &err);
    usc_report_close(report);
    return 0;
}
