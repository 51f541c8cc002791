// SPDX-License-Identifier: Apache-2.0
// An export under way. export.c begins and ends it and walks over the calls;
// export_value.c describes arguments and tensors, and writes their files.
#ifndef USC_FOREIGN_EXPORTING_H
#define USC_FOREIGN_EXPORTING_H

#include <stdio.h>

#include <ulpscope/foreign.h>
#include <ulpscope/trace.h>

#include "base/arena.h"
#include "base/keys.h"
#include "base/line.h"
#include "base/path.h"
#include "foreign/api_names.h"
#include "foreign/torch_files.h"

typedef struct usc_exporting usc_exporting;

/** A kind of dump. */
typedef struct usc_export_kind {
    const char *name;
    /* Opens and closes the files of one step; writes one call. */
    usc_status (*begin_step)(usc_exporting *ex, int64_t step, usc_error *err);
    usc_status (*put_call)(usc_exporting *ex, usc_error *err);
    usc_status (*end_step)(usc_exporting *ex, usc_error *err);
    bool as_operators; /* torch.Tensor.add is Tensor.__add__ */
} usc_export_kind;

struct usc_exporting {
    const usc_export_options *options;
    const usc_export_kind *kind;
    usc_export_counts *counts;
    usc_trace *trace;
    usc_torch_files files;
    usc_arena texts;               /* of the call at hand */
    usc_call call;                 /* it; valid until the trace is read again */
    const usc_json *args;          /* its arguments */
    char name[USC_API_NAME + 24];  /* Functional.linear.0 */
    usc_keys numbers;              /* of this step: how many calls a name has had */
    FILE *calls, *stacks, *places; /* open files of the step */
    bool has_content;              /* some tensor of the trace */
    bool backward;                 /* the call is a function's backward pass */
    bool first_backward;           /* no such call was written */
    bool first;                    /* no call was written to them */
    char folder[USC_PATH_SIZE];    /* of the step */
    char data[64];                 /* where in it tensors lie */
    char part[USC_PATH_SIZE];
};

/** Describes a value of the arguments as msprobe does; `path` is its place. */
USC_NODISCARD usc_status usc_export_value(usc_exporting *ex, const usc_json *value,
                                          const char *path, usc_line *to, usc_error *err);

/** Describes what the call returned: a list. */
USC_NODISCARD usc_status usc_export_results(usc_exporting *ex, usc_line *to,
                                            usc_error *err);

/** The tensor of that role and place; NULL. */
const usc_call_arg *usc_export_arg(const usc_exporting *ex, usc_role role,
                                   const char *path);

extern const usc_export_kind usc_export_msprobe, usc_export_ascend_v1;

#endif
