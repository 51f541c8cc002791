// SPDX-License-Identifier: Apache-2.0
// The transaction that rows are written in. Neighbours: trace_write.c, trace_rows.c.
#include <time.h>

#include "trace/trace_writer.h"

int64_t usc_writer_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

usc_status usc_writer_result(usc_trace_writer *w, usc_status st, const usc_error *why,
                             usc_error *err)
{
    if (st == USC_OK) return USC_OK;
    if (w->failed.status == USC_OK) w->failed = *why;
    if (err != NULL) *err = w->failed;
    return st;
}

usc_status usc_writer_begin(usc_trace_writer *w, usc_error *err)
{
    usc_error why = {0};
    if (w->failed.status != USC_OK)
        return usc_writer_result(w, w->failed.status, &w->failed, err);
    if (w->in_transaction) return USC_OK;
    const usc_status st = usc_db_exec(&w->db, "BEGIN", "beginning", &why);
    w->in_transaction = st == USC_OK;
    w->pending_since = usc_writer_now_ms();
    return usc_writer_result(w, st, &why, err);
}
