// SPDX-License-Identifier: Apache-2.0
// A host program for tests of capture, without torch: storages that can be held, die and
// come back, tensors over them, and a trace folder of its own for each test.
#ifndef USC_TESTS_CAPTURE_HOST_H
#define USC_TESTS_CAPTURE_HOST_H

#include <ulpscope/x/capture.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct host_storage {
    void *bytes;
    int64_t size;
    atomic_bool dead;
    atomic_int n_holds;
} host_storage;

typedef struct host {
    char folder[64]; /* removed by host_stop */
    char path[96];   /* of the trace in it */
    int64_t op;
    usc_capture *c;
    usc_capture_options options;
    usc_capture_hooks hooks;
    atomic_int n_reads, fail_read_at;
    atomic_llong n_bytes_read;
} host;

static inline void *host_hold(void *ctx, void *storage)
{
    (void)ctx;
    atomic_fetch_add(&((host_storage *)storage)->n_holds, 1);
    return storage;
}

static inline bool host_alive(void *ctx, void *held)
{
    (void)ctx;
    return !atomic_load(&((host_storage *)held)->dead);
}

static inline void host_release(void *ctx, void *held)
{
    (void)ctx;
    atomic_fetch_sub(&((host_storage *)held)->n_holds, 1);
}

/* For hooks.read: what a device does; the fail_read_at-th read fails. */
static inline usc_status host_read(void *ctx, void *storage, int64_t offset,
                                   void *destination, int64_t size, usc_error *err)
{
    host *h = ctx;
    const host_storage *s = storage;
    const int i = atomic_fetch_add(&h->n_reads, 1) + 1;
    if (i == atomic_load(&h->fail_read_at))
        return usc_error_set(err, USC_E_IO, -1, "read %d: device lost", i);
    assert_true(offset >= 0 && size > 0 && size <= s->size - offset);
    atomic_fetch_add(&h->n_bytes_read, size);
    memcpy(destination, (const char *)s->bytes + offset, (size_t)size);
    return USC_OK;
}

/* Makes the folder; opens nothing. */
static inline void host_prepare(host *h)
{
    *h = (host){
        .hooks = {.hold = host_hold, .alive = host_alive, .release = host_release}};
    h->hooks.ctx = h;
    snprintf(h->folder, sizeof h->folder, "/tmp/usc-capture-XXXXXX");
    assert_non_null(mkdtemp(h->folder));
    snprintf(h->path, sizeof h->path, "%s/trace", h->folder);
}

/* Opens the session with an operator and step 0. */
static inline void host_open(host *h)
{
    usc_error err = {0};
    if (usc_capture_open(h->path, &h->hooks, &h->options, &h->c, &err) != USC_OK)
        fail_msg("%s", err.text);
    h->op = usc_capture_op(h->c, "test::op", "test::op(Tensor a) -> Tensor");
    assert_int_not_equal(h->op, 0);
    usc_capture_step_begin(h->c, 0);
}

static inline void host_start(host *h)
{
    host_prepare(h);
    host_open(h);
}

/* Closes the session and opens what it wrote. */
static inline usc_trace *host_finish(host *h)
{
    usc_error err = {0};
    usc_trace *t = NULL;
    usc_capture_step_end(h->c);
    if (usc_capture_close(h->c, true, &err) != USC_OK) fail_msg("%s", err.text);
    h->c = NULL;
    if (usc_trace_open(h->path, NULL, &t, &err) != USC_OK) fail_msg("%s", err.text);
    return t;
}

static inline void host_stop(host *h, usc_trace *t)
{
    char command[128];
    usc_trace_close(t);
    snprintf(command, sizeof command, "rm -rf '%s'", h->folder);
    assert_int_equal(system(command), 0);
}

static inline host_storage host_memory(void *bytes, int64_t size)
{
    return (host_storage){.bytes = bytes, .size = size};
}

/* A float32 vector of `n` elements from element `offset` on. */
static inline usc_capture_tensor host_vector(const host *h, host_storage *s,
                                             int64_t offset, int64_t n)
{
    usc_capture_tensor t = {.view = {.dtype = USC_F32, .ndim = 1},
                            .dtype_name = "float32",
                            .storage = s,
                            .storage_size = s->size,
                            .offset = offset,
                            .device = "cpu",
                            .i_item = -1};
    t.view.sizes[0] = n;
    t.view.strides[0] = 1;
    if (h->hooks.read == NULL) {
        t.base = s->bytes;
        t.view.data = (float *)s->bytes + offset;
    }
    return t;
}

/* The whole storage. */
static inline usc_capture_tensor host_whole(const host *h, host_storage *s)
{
    return host_vector(h, s, 0, s->size / 4);
}

static inline usc_capture_tensor host_role(usc_capture_tensor t, usc_role role)
{
    t.role = role;
    return t;
}

static inline int64_t host_begin(host *h, const usc_capture_tensor *in, int n)
{
    const usc_capture_call call = {
        .op = h->op, .args = "{}", .tensors = in, .n_tensors = n};
    return usc_capture_begin(h->c, &call);
}

/* A call that reads `in` and returns `out`. */
static inline int64_t host_call(host *h, usc_capture_tensor in, usc_capture_tensor out)
{
    out = host_role(out, USC_ROLE_OUT);
    const int64_t sequence = host_begin(h, &in, 1);
    usc_capture_end(h->c, sequence, &out, 1, true);
    return sequence;
}

/* A call that only reads. */
static inline int64_t host_use(host *h, usc_capture_tensor in)
{
    const int64_t sequence = host_begin(h, &in, 1);
    usc_capture_end(h->c, sequence, NULL, 0, true);
    return sequence;
}

/* Argument `i` of a call, copied out of the reader. */
static inline usc_call_arg host_arg(usc_trace *t, int64_t sequence, int i)
{
    usc_call call;
    usc_error err = {0};
    if (usc_trace_read_call(t, sequence, &call, &err) != USC_OK) fail_msg("%s", err.text);
    assert_true(i < call.n_args);
    return call.arg[i];
}

static inline void host_assert_bytes(usc_trace *t, const usc_call_arg *arg,
                                     const void *bytes, int64_t size)
{
    const void *data = NULL;
    int64_t n = -1;
    usc_error err = {0};
    if (usc_trace_blob(t, arg->blob, &data, &n, &err) != USC_OK) fail_msg("%s", err.text);
    assert_int_equal(n, size);
    if (size > 0) assert_memory_equal(data, bytes, (size_t)size);
}

/* First column of the first row of a query on trace.db as text; "" where there is none.
 */
static inline void host_query(const host *h, const char *sql, char *out, size_t size)
{
    char path[128];
    sqlite3 *db = NULL;
    sqlite3_stmt *stmt = NULL;
    snprintf(path, sizeof path, "%s/trace.db", h->path);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &stmt, NULL), SQLITE_OK);
    out[0] = '\0';
    if (sqlite3_step(stmt) == SQLITE_ROW && sqlite3_column_text(stmt, 0) != NULL)
        snprintf(out, size, "%s", (const char *)sqlite3_column_text(stmt, 0));
    sqlite3_finalize(stmt);
    sqlite3_close(db);
}

#endif
