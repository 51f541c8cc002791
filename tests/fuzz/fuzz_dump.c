// SPDX-License-Identifier: Apache-2.0
// A dump.json of msprobe without files of tensors: what it becomes is a trace that opens,
// and of what is refused nothing stays.
#include "fuzz.h"

#include <ulpscope/x/foreign.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    usc_import_counts counts;
    usc_run_end end;
    usc_error err;
    char trace[600];
    usc_trace *t = NULL;
    const char *path = fuzz_file("dump.json", data, size);
    snprintf(trace, sizeof trace, "%s/trace", fuzz_folder());
    const usc_import_options o = {.dump = path, .trace = trace, .skip_damaged = size % 2};
    const usc_status st = usc_import(&o, NULL, &counts, &end, &err);
    fuzz_said(st, &err);
    FUZZ_REQUIRE((access(trace, F_OK) == 0) == (st == USC_OK));
    strcat(trace, ".part");
    FUZZ_REQUIRE(access(trace, F_OK) != 0);
    trace[strlen(trace) - 5] = '\0';
    if (st != USC_OK) return 0;
    FUZZ_REQUIRE(usc_trace_open(trace, NULL, &t, &err) == USC_OK);
    for (int64_t i = 1; i <= counts.calls; i++) {
        usc_call call;
        usc_arguments args = {0};
        FUZZ_REQUIRE(usc_trace_read_call(t, i, &call, &err) == USC_OK);
        FUZZ_REQUIRE(usc_arguments_read(call.args, &args, &err) == USC_OK);
        usc_arguments_free(&args);
    }
    usc_trace_close(t);
    const char *files[] = {"trace.db", "tensors-00000.safetensors"};
    for (int i = 0; i < 2; i++) {
        char file[700];
        snprintf(file, sizeof file, "%s/%s", trace, files[i]);
        (void)unlink(file);
    }
    FUZZ_REQUIRE(rmdir(trace) == 0);
    return 0;
}
