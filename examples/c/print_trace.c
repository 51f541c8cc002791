// SPDX-License-Identifier: Apache-2.0
// Prints the calls of a trace: number, operator, and of each tensor its place, dtype and
// shape. `print_trace TRACE [PATTERN]`
//
//     cc print_trace.c $(pkg-config --cflags --libs ulpscope) -o print_trace
#include <inttypes.h>
#include <stdio.h>

#include <ulpscope/ulpscope.h>

static void print_tensor(const usc_call_arg *t)
{
    printf("  %s %s[", t->path, t->dtype_name);
    for (int i = 0; i < t->ndim; i++)
        printf("%s%" PRId64, i > 0 ? ", " : "", t->sizes[i]);
    printf("]%s\n", t->role == USC_ROLE_OUT ? " out" : "");
}

/* Everything that a read hands out is the trace's until the next one: what is wanted
 * longer has to be copied. */
static usc_status print_call(usc_trace *trace, int64_t sequence, usc_error *err)
{
    usc_call call;
    const usc_status st = usc_trace_read_call(trace, sequence, &call, err);
    if (st != USC_OK) return st;
    printf("%" PRId64 " %s\n", sequence, call.op);
    for (int i = 0; i < call.n_args; i++)
        print_tensor(&call.arg[i]);
    return USC_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fputs("usage: print_trace TRACE [PATTERN]\n", stderr);
        return 2;
    }
    const usc_trace_filter filter = {.ops = argc > 2 ? argv[2] : NULL, .step = -1};
    usc_trace *calls = NULL, *trace = NULL;
    const int64_t *sequences;
    int64_t n = 0;
    usc_error err;
    /* Two handles, as what one hands out ends with its next call. */
    usc_status st = usc_trace_open(argv[1], NULL, &calls, &err);
    if (st == USC_OK) st = usc_trace_open(argv[1], NULL, &trace, &err);
    if (st == USC_OK) st = usc_trace_select(calls, &filter, &sequences, &n, &err);
    for (int64_t i = 0; i < n && st == USC_OK; i++)
        st = print_call(trace, sequences[i], &err);
    if (st != USC_OK) fprintf(stderr, "%s\n", err.text);
    usc_trace_close(trace);
    usc_trace_close(calls);
    return st == USC_OK ? 0 : 2;
}
