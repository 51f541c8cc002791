// SPDX-License-Identifier: Apache-2.0
// An export under way. export.c begins and ends it and walks over the calls;
// export_value.c describes arguments and tensors, and writes their files.
#ifndef USC_FOREIGN_EXPORTING_H
#define USC_FOREIGN_EXPORTING_H

#include <stdio.h>

#include <ulpscope/trace.h>
#include <ulpscope/x/foreign.h>
#include <ulpscope/x/writing.h>

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
    /* The dump's name of an operator, without a number; false: it has none. */
    bool (*name_of)(const char *op, char *out, size_t size);
    bool unnumbered; /* that is the name of a call */
    bool by_path;    /* tensors: by path as seen from the folder of the steps, those of
                        backward passes apart */
} usc_export_kind;

struct usc_exporting {
    const usc_export_options *options;
    const usc_export_kind *kind;
    usc_export_counts *counts;
    usc_trace *trace;
    usc_torch_files files;
    usc_arena texts;               /* of the call at hand */
    usc_call call;                 /* it; valid until the trace is read again */
    usc_arguments args;            /* its arguments */
    char name[USC_API_NAME + 24];  /* Functional.linear.0 */
    usc_keys numbers;              /* of this step: how many calls a name has had */
    FILE *calls, *stacks, *places; /* open files of the step */
    bool has_content;              /* some tensor of the trace */
    bool left_out;                 /* the call: the dump cannot hold it */
    int64_t forward;               /* of a backward pass */
    char identifier[64];           /* of the call, in its folder: ditorch's */
    bool backward;                 /* the call is a function's backward pass */
    bool first_backward;           /* no such call was written */
    bool first;                    /* no call was written to them */
    char folder[USC_PATH_SIZE];    /* of the step */
    char data[64];                 /* where in it tensors lie */
    char part[USC_PATH_SIZE];
};

/** Describes a value of the arguments as msprobe does. */
USC_NODISCARD usc_status usc_export_value(usc_exporting *ex, const usc_value *value,
                                          usc_line *to, usc_error *err);

/** Describes what the call returned: a list. */
USC_NODISCARD usc_status usc_export_results(usc_exporting *ex, usc_line *to,
                                            usc_error *err);

/** The tensor of that role and place; NULL. */
const usc_call_arg *usc_export_arg(const usc_exporting *ex, usc_role role,
                                   const char *path);

/** How many places, from out[0] on, the results of the call have. */
int usc_export_count_results(const usc_exporting *ex);

/** The bytes that a tensor shows, from its first element on; NULL: not kept. */
USC_NODISCARD usc_status usc_export_bytes(usc_exporting *ex, const usc_call_arg *arg,
                                          const unsigned char **bytes, int64_t *size,
                                          usc_error *err);

extern const usc_export_kind usc_export_msprobe, usc_export_ascend_v1, usc_export_ditorch;

#endif
