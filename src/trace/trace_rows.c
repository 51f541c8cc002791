// SPDX-License-Identifier: Apache-2.0
// One function per table: a row in, one prepared INSERT.
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "trace/trace_writer.h"

/* Holds any statistics: two histograms of all bins and sixteen numbers. */
#define STATS_TEXT (2 * USC_N_BINADES * 20 + 1024)

/* Runs one usc_db_put inside the transaction and keeps its failure. */
#define PUT(w, err, ...)                                                                 \
    do {                                                                                 \
        usc_error why_ = {0};                                                            \
        const usc_status begun_ = usc_writer_begin(w, err);                              \
        if (begun_ != USC_OK) return begun_;                                             \
        const usc_status put_ = usc_db_put(&(w)->db, __VA_ARGS__);                       \
        return usc_writer_result(w, put_, &why_, err);                                   \
    } while (0)
#define WHY (&why_)

usc_status usc_trace_set_meta(usc_trace_writer *w, const char *key, const char *value,
                              usc_error *err)
{
    PUT(w, err, USC_SQL_SET_META, WHY, "ss", key, value);
}

usc_status usc_trace_put_module(usc_trace_writer *w, const usc_module_row *row,
                                usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_MODULE, WHY, "iss", row->id, row->path, row->class_name);
}

usc_status usc_trace_put_stack(usc_trace_writer *w, const usc_stack_row *row,
                               usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_STACK, WHY, "is", row->id, row->frames);
}

usc_status usc_trace_put_op(usc_trace_writer *w, const usc_op_row *row, usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_OP, WHY, "iss", row->id, row->name, row->schema);
}

usc_status usc_trace_put_storage(usc_trace_writer *w, const usc_storage_row *row,
                                 usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_STORAGE, WHY, "isi", row->id, row->device, row->bytes);
}

usc_status usc_trace_put_version(usc_trace_writer *w, const usc_version_row *row,
                                 usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_VERSION, WHY, "iiirr", row->id, row->storage, row->generation,
        row->blob, row->call);
}

/* "[2, 3]": USC_MAX_DIMS numbers of at most 20 characters and a separator. */
#define DIMS_TEXT (USC_MAX_DIMS * 22 + 3)

static void dims_text(char *out, const int64_t *dims, int n)
{
    size_t used = (size_t)snprintf(out, DIMS_TEXT, "[");
    for (int i = 0; i < n; i++)
        used += (size_t)snprintf(out + used, DIMS_TEXT - used, "%s%lld",
                                 i > 0 ? ", " : "", (long long)dims[i]);
    snprintf(out + used, DIMS_TEXT - used, "]");
}

usc_status usc_trace_put_tensor(usc_trace_writer *w, const usc_tensor_row *row,
                                usc_error *err)
{
    assert(w && row);
    char sizes[DIMS_TEXT], strides[DIMS_TEXT], stats[STATS_TEXT];
    usc_error bad = {0};
    if (row->ndim < 0 || row->ndim > USC_MAX_DIMS) {
        const usc_status st =
            usc_error_set(&bad, USC_E_ARG, -1, "tensor %lld: %d dimensions",
                          (long long)row->id, row->ndim);
        return usc_writer_result(w, st, &bad, err);
    }
    dims_text(sizes, row->sizes, row->ndim);
    dims_text(strides, row->strides, row->ndim);
    if (row->stats != NULL) usc_stats_to_json(row->stats, stats, sizeof stats);
    PUT(w, err, USC_SQL_PUT_TENSOR, WHY, "iisssiissri", row->id, row->version,
        row->dtype_name, sizes, strides, row->offset, (int64_t)row->requires_grad,
        row->stats != NULL ? stats : NULL, row->form, row->blob, row->first);
}

usc_status usc_trace_put_call(usc_trace_writer *w, const usc_call_row *row,
                              usc_error *err)
{
    assert(w && row);
    PUT(w, err, USC_SQL_PUT_CALL, WHY, "iisirrirsssi", row->sequence, row->step,
        usc_phase_text(row->phase), row->op, row->module, row->stack, row->thread,
        row->parent, row->args, row->state, row->status, (int64_t)row->composite);
}

usc_status usc_trace_end_call(usc_trace_writer *w, int64_t sequence, const char *status,
                              usc_error *err)
{
    PUT(w, err, USC_SQL_END_CALL, WHY, "is", sequence, status);
}

usc_status usc_trace_put_arg(usc_trace_writer *w, const usc_arg_row *row, usc_error *err)
{
    const int64_t position = ++w->n_args;
    PUT(w, err, USC_SQL_PUT_ARG, WHY, "issii", row->call, usc_role_text(row->role),
        row->path, position, row->tensor);
}

usc_status usc_trace_put_step(usc_trace_writer *w, const usc_step_row *row,
                              usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_STEP, WHY, "irri", row->step, row->first_call, row->last_call,
        (int64_t)row->complete);
}

usc_status usc_trace_put_note(usc_trace_writer *w, int64_t call, const char *kind,
                              const char *text, usc_error *err)
{
    PUT(w, err, USC_SQL_PUT_NOTE, WHY, "rss", call, kind, text);
}
