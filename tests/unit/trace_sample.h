// SPDX-License-Identifier: Apache-2.0
// What the tests of trace and result share: scratch folders and a writer of small calls
// whose every byte follows from their number, so that any reader can check them.
#ifndef USC_TESTS_TRACE_SAMPLE_H
#define USC_TESTS_TRACE_SAMPLE_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/trace.h>

/** Makes a fresh folder and returns its path, which the caller frees. In memory where
 * that can be: the tests are about bytes and orders, not about a disk's speed. */
static inline char *sample_folder(void)
{
    const char *base = getenv("TMPDIR");
    char *path = malloc(512);
    if (path == NULL) abort();
    if (base == NULL) base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(path, 512, "%s/ulpscope-XXXXXX", base);
    if (mkdtemp(path) == NULL) abort();
    return path;
}

/** Removes a folder of plain files. */
static inline void sample_remove(const char *folder)
{
    char path[1024];
    DIR *dir = opendir(folder);
    if (dir == NULL) return;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        const int n = snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        if (unlink(path) != 0) sample_remove(path);
    }
    closedir(dir);
    rmdir(folder);
}

/** Ends a group of tests whose state is a folder of sample_folder: it goes. */
static inline int sample_teardown(void **state)
{
    sample_remove(*state);
    free(*state);
    return 0;
}

/** Bytes of the blob of call `i`: size and content depend on `i` alone. */
static inline int64_t sample_size(int64_t i)
{
    return i % 7 == 0 ? 0 : i * 37 % 5000;
}

static inline void sample_fill(int64_t i, unsigned char *out)
{
    uint64_t x = (uint64_t)i * 0x9E3779B97F4A7C15u + 1;
    for (int64_t k = 0; k < sample_size(i); k++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        out[k] = (unsigned char)(x >> 56);
    }
}

/** The rows that calls refer to. */
static inline usc_status sample_begin(usc_trace_writer *w, usc_error *err)
{
    const usc_module_row module = {1, "layers.0", "Linear"};
    const usc_stack_row stack = {1, "[[\"train.py\", 3, \"step\"]]"};
    const usc_op_row ops[] = {{1, "aten::mm", "aten::mm(Tensor a, Tensor b) -> Tensor"},
                              {2, "aten::add.Tensor", "aten::add.Tensor(...)"}};
    usc_status st = usc_trace_put_module(w, &module, err);
    if (st == USC_OK) st = usc_trace_put_stack(w, &stack, err);
    for (int i = 0; i < 2 && st == USC_OK; i++)
        st = usc_trace_put_op(w, &ops[i], err);
    return st;
}

/** Call `i` (from 1): one input from outside and one output, over one storage each. */
static inline usc_status sample_call(usc_trace_writer *w, int64_t i, usc_error *err)
{
    unsigned char bytes[5000];
    int64_t blob = 0;
    const int64_t n = sample_size(i), one = 1;
    sample_fill(i, bytes);
    usc_status st = usc_trace_put_blob(w, bytes, n, &blob, err);
    for (int k = 0; k < 2 && st == USC_OK; k++) {
        const int64_t id = 2 * i - 1 + k;
        const usc_storage_row storage = {id, "cpu", n};
        const usc_version_row version = {id, id, 0, blob, k == 1 ? i : 0};
        const usc_tensor_row tensor = {.id = id,
                                       .version = id,
                                       .dtype_name = "uint8",
                                       .ndim = 1,
                                       .sizes = &n,
                                       .strides = &one,
                                       .requires_grad = k == 0};
        st = usc_trace_put_storage(w, &storage, err);
        if (st == USC_OK) st = usc_trace_put_version(w, &version, err);
        if (st == USC_OK) st = usc_trace_put_tensor(w, &tensor, err);
    }
    const usc_call_row call = {.sequence = i,
                               .step = i / 100,
                               .phase = USC_PHASE_FORWARD,
                               .op = 1 + i % 2,
                               .module = i % 2,
                               .stack = 1,
                               .parent = i % 10 == 0 ? i - 1 : 0,
                               .thread = 1,
                               .args = "{\"args\": [{\"tensor\": true}], \"kwargs\": {}}",
                               .status = "ok"};
    const usc_arg_row in = {i, USC_ROLE_IN, "args[0]", 2 * i - 1};
    const usc_arg_row out = {i, USC_ROLE_OUT, "out[0]", 2 * i};
    if (st == USC_OK) st = usc_trace_put_call(w, &call, err);
    if (st == USC_OK) st = usc_trace_put_arg(w, &in, err);
    if (st == USC_OK) st = usc_trace_put_arg(w, &out, err);
    return st;
}

/** Reads call `i` back and compares every byte; an error where anything differs. */
static inline usc_status sample_verify(usc_trace *t, int64_t i, usc_error *err)
{
    unsigned char bytes[5000];
    usc_call call;
    const void *data = NULL;
    int64_t size = -1;
    usc_status st = usc_trace_read_call(t, i, &call, err);
    if (st != USC_OK) return st;
    if (call.n_args != 2 || strcmp(call.arg[0].path, "args[0]") != 0 ||
        call.arg[0].role != USC_ROLE_IN || call.arg[1].role != USC_ROLE_OUT ||
        call.arg[1].writer != i || call.arg[0].sizes[0] != sample_size(i))
        return usc_error_set(err, USC_E_CORRUPT, i, "call %lld differs", (long long)i);
    st = usc_trace_blob(t, call.arg[0].blob, &data, &size, err);
    if (st != USC_OK) return st;
    sample_fill(i, bytes);
    if (size == sample_size(i) && memcmp(data, bytes, (size_t)size) == 0) return USC_OK;
    return usc_error_set(err, USC_E_CORRUPT, i, "bytes of call %lld differ",
                         (long long)i);
}

/** A closed trace of calls 1..n. */
static inline usc_status sample_write(const char *path, const usc_trace_options *options,
                                      int64_t n, usc_error *err)
{
    usc_error ignored;
    usc_trace_writer *w = NULL;
    usc_status st = usc_trace_create(path, options, &w, err);
    if (st == USC_OK) st = sample_begin(w, err);
    for (int64_t i = 1; i <= n && st == USC_OK; i++) {
        st = sample_call(w, i, err);
        if (st == USC_OK) st = usc_trace_tick(w, err);
    }
    const usc_status finished = usc_trace_finish(w, true, st == USC_OK ? err : &ignored);
    return st == USC_OK ? finished : st;
}

#endif
