// SPDX-License-Identifier: Apache-2.0
// A dump of msprobe on disk, and the trace that is made of it.
#ifndef USC_TESTS_IMPORT_DUMP_H
#define USC_TESTS_IMPORT_DUMP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>
#include <sys/stat.h>

#include <ulpscope/ulpscope.h>
#include <ulpscope/x/foreign.h>

#include "trace_sample.h"

static char *folder;
static char dump[700], trace[700];
static usc_import_counts counts;

static inline int make_folder(void **state)
{
    *state = folder = sample_folder();
    snprintf(dump, sizeof dump, "%s/dump", folder);
    snprintf(trace, sizeof trace, "%s/trace", folder);
    return mkdir(dump, 0777);
}

static inline void write_file(const char *name, const void *bytes, size_t n)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/%s", dump, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* dump.json with these members of "data". */
static inline void write_dump(const char *data)
{
    char text[8192];
    const int n =
        snprintf(text, sizeof text,
                 "{\"task\": \"tensor\", \"level\": \"L1\", \"framework\": \"pytorch\", "
                 "\"dump_data_dir\": \"/elsewhere\", \"data\": {%s}}",
                 data);
    write_file("dump.json", text, (size_t)n);
}

/* float32 [2, 3] of 0, 1, .. in dump_tensor_data. */
static inline void write_npy(const char *name, const char *dtype)
{
    char path[1024], head[128], file[256];
    snprintf(path, sizeof path, "%s/dump_tensor_data", dump);
    (void)mkdir(path, 0777);
    const int n =
        snprintf(head, sizeof head,
                 "{'descr': '%s', 'fortran_order': False, 'shape': (2, 3)}", dtype);
    memcpy(file, "\x93NUMPY\x01\x00", 8);
    file[8] = (char)n;
    file[9] = 0;
    memcpy(file + 10, head, (size_t)n);
    const float values[6] = {0, 1, 2, 3, 4, 5};
    memcpy(file + 10 + n, values, sizeof values);
    snprintf(path, sizeof path, "dump_tensor_data/%s", name);
    write_file(path, file, 10 + (size_t)n + sizeof values);
}

static inline usc_status import_as(bool skip_damaged, const char *rank, usc_error *err)
{
    usc_run_end end;
    char part[720];
    const usc_import_options o = {
        .dump = dump, .trace = trace, .rank = rank, .skip_damaged = skip_damaged};
    sample_remove(trace);
    const usc_status st = usc_import(&o, NULL, &counts, &end, err);
    snprintf(part, sizeof part, "%s.part", trace);
    assert_int_not_equal(access(part, F_OK), 0); /* nothing half is left */
    assert_int_equal(access(trace, F_OK) == 0, st == USC_OK);
    return st;
}

static inline usc_call call_of(usc_trace *t, int64_t sequence)
{
    usc_call call;
    usc_error err;
    if (usc_trace_read_call(t, sequence, &call, &err) != USC_OK) fail_msg("%s", err.text);
    return call;
}

static inline const usc_call_arg *arg_of(const usc_call *call, usc_role role,
                                         const char *path)
{
    for (int i = 0; i < call->n_args; i++)
        if (call->arg[i].role == role && strcmp(call->arg[i].path, path) == 0)
            return &call->arg[i];
    fail_msg("%s has no %s %s", call->op, usc_role_text(role), path);
    return NULL;
}

#define STATS "\"Max\": 2.5, \"Min\": -1, \"Mean\": 0.5, \"Norm\": 3"
#define TENSOR(more)                                                                     \
    "{\"type\": \"torch.Tensor\", \"dtype\": \"torch.float32\", \"shape\": [2, "         \
    "3], " STATS more "}"
#define FILED(name) TENSOR(", \"data_name\": \"" name "\"")
#define CALL(name, args, out)                                                            \
    "\"" name "\": {\"input_args\": [" args "], \"input_kwargs\": {}, \"output\": [" out \
    "]}"

#endif
