// SPDX-License-Identifier: Apache-2.0
// PACK/pack.json, call by call. Format: docs/reference/pack-format.md.
#ifndef USC_PACK_READ_H
#define USC_PACK_READ_H

#include <ulpscope/x/held.h>

#include "pack/pack_operands.h"
#include "json/json.h"

#define USC_PACK_VERSION 4

enum {
    USC_PACK_OUTPUTS = 1 << 20, /* of one call, at most */
    USC_PACK_READINGS = 64      /* of one output */
};

typedef struct usc_manifest usc_manifest;

/** One output as the manifest has it. */
typedef struct usc_pack_entry {
    const char *name;       /* in OUTPUTS: "12/out[0]" */
    const char *unjudged;   /* why there is no reference; NULL where there is one */
    const usc_json *dtypes; /* names of those that a device may give, the usual one
                               first; empty: any */
    usc_pack_operands operands;
} usc_pack_entry;

/** One call; lives as long as the manifest, row.stack until the arena is reset. */
typedef struct usc_pack_call {
    usc_result_row row;      /* what identifies it */
    const char *unjudged;    /* why none of it can be judged; NULL else */
    const char *undefined;   /* why its result is nothing that was promised; NULL else */
    const char *file;        /* of its operands, relative to the pack; NULL for none */
    const char *inputs_file; /* likewise, of its arguments */
    const usc_json *inputs;  /* names in that file, and arguments */
    const usc_json *outputs;
    int n_outputs;
    const usc_json *undefined_outputs; /* names of those that nothing is promised of */
    usc_freedom together;              /* what outputs leave free together */
} usc_pack_call;

/** Reads and checks pack.json. Errors: USC_E_NOT_FOUND, USC_E_IO, USC_E_CORRUPT,
 * USC_E_VERSION, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_manifest_open(const char *pack, const usc_alloc *alloc,
                                           usc_manifest **out, usc_error *err);

void usc_manifest_close(usc_manifest *m);

/** Id of the trace that the pack was made from. */
const char *usc_manifest_trace_id(const usc_manifest *m);

/** The next call; *more is false behind the last. Errors: USC_E_CORRUPT, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_manifest_next(usc_manifest *m, usc_arena *arena,
                                           usc_pack_call *out, bool *more,
                                           usc_error *err);

/** Outputs of the call that came last, with their operands out of `tensors` (NULL where
 * the call has none), into `out`, which lives as long as the arena. Errors:
 * USC_E_CORRUPT, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_manifest_outputs(usc_manifest *m, const usc_json *outputs,
                                              const usc_safetensors *tensors,
                                              usc_arena *arena, usc_pack_entry *out,
                                              usc_error *err);

#endif
