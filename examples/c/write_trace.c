// SPDX-License-Identifier: Apache-2.0
// A source of calls in C: writes a trace of one aten::mm of which this program made the
// result, as a simulator or a runtime would that has no torch. `ulpscope show TRACE`
// lists it, `ulpscope check TRACE --device cpu` judges the operator on that data.
// `write_trace TRACE`
//
//     cc write_trace.c $(pkg-config --cflags --libs ulpscope) -o write_trace
#include <stdio.h>

#include <ulpscope/ulpscope.h>

enum { M = 4, K = 6, N = 3 };

/* One contiguous matrix of float32 in a storage of its own; ids are this program's. */
static usc_status put_matrix(usc_trace_writer *w, int64_t id, const float *data,
                             int64_t rows, int64_t columns, int64_t writer,
                             usc_error *err)
{
    const int64_t sizes[] = {rows, columns}, strides[] = {columns, 1};
    const int64_t size = rows * columns * (int64_t)sizeof *data;
    int64_t blob = 0;
    usc_status st = usc_trace_put_blob(w, data, size, &blob, err);
    const usc_storage_row storage = {.id = id, .device = "cpu", .bytes = size};
    const usc_version_row version = {
        .id = id, .storage = id, .blob = blob, .call = writer};
    const usc_tensor_row tensor = {.id = id,
                                   .version = id,
                                   .dtype_name = "float32",
                                   .ndim = 2,
                                   .sizes = sizes,
                                   .strides = strides};
    if (st == USC_OK) st = usc_trace_put_storage(w, &storage, err);
    if (st == USC_OK) st = usc_trace_put_version(w, &version, err);
    if (st == USC_OK) st = usc_trace_put_tensor(w, &tensor, err);
    return st;
}

/* The call, and which tensor stands where in it. A source of many calls does this again
 * and again, with usc_trace_tick between two. */
static usc_status put_call(usc_trace_writer *w, usc_error *err)
{
    const usc_op_row op = {1, "aten::mm", "aten::mm(Tensor self, Tensor mat2) -> Tensor"};
    const usc_call_row call = {
        .sequence = 1,
        .step = 0,
        .phase = USC_PHASE_FORWARD,
        .op = 1,
        .thread = 1,
        .args = "{\"args\": [{\"tensor\": true}, {\"tensor\": true}], \"kwargs\": {}}",
        .status = "ok"};
    const usc_arg_row args[] = {{1, USC_ROLE_IN, "args[0]", 1},
                                {1, USC_ROLE_IN, "args[1]", 2},
                                {1, USC_ROLE_OUT, "out[0]", 3}};
    const usc_step_row step = {
        .step = 0, .first_call = 1, .last_call = 1, .complete = true};
    usc_status st = usc_trace_put_op(w, &op, err);
    if (st == USC_OK) st = usc_trace_put_call(w, &call, err);
    for (int i = 0; i < 3 && st == USC_OK; i++)
        st = usc_trace_put_arg(w, &args[i], err);
    if (st == USC_OK) st = usc_trace_put_step(w, &step, err);
    return st;
}

int main(int argc, char **argv)
{
    float a[M * K], b[K * N], c[M * N] = {0};
    usc_trace_writer *w = NULL;
    usc_error err;
    if (argc != 2) {
        fputs("usage: write_trace TRACE\n", stderr);
        return 2;
    }
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i % 7) / 3;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 5) / 7;
    for (int i = 0; i < M * N; i++)
        for (int k = 0; k < K; k++)
            c[i] += a[i / N * K + k] * b[k * N + i % N];

    usc_status st = usc_trace_create(argv[1], NULL, &w, &err);
    if (st == USC_OK) st = put_matrix(w, 1, a, M, K, 0, &err);
    if (st == USC_OK) st = put_matrix(w, 2, b, K, N, 0, &err);
    if (st == USC_OK) st = put_matrix(w, 3, c, M, N, 1, &err);
    if (st == USC_OK) st = put_call(w, &err);
    if (st != USC_OK) fprintf(stderr, "%s\n", err.text);
    /* Closes it also after a failure: what was committed stays readable. */
    if (usc_trace_finish(w, st == USC_OK, NULL) != USC_OK) return 2;
    return st == USC_OK ? 0 : 2;
}
