// SPDX-License-Identifier: Apache-2.0
// PACK/pack.json, call by call. Format: docs/pack-format.md.
#ifndef USC_PACK_READ_H
#define USC_PACK_READ_H

#include "pack/pack_finding.h"

#define USC_PACK_VERSION 2

typedef struct usc_manifest usc_manifest;

/** One output as the manifest has it. */
typedef struct usc_pack_entry {
    const char *name;     /* in OUTPUTS: "12/out[0]" */
    const char *unjudged; /* why there is no reference; NULL where there is one */
    const char *dtypes;   /* JSON list of the dtypes that a device may give; "": any */
    const char *usual;    /* the first of them; "" where there is none */
    usc_pack_operands operands;
} usc_pack_entry;

/** One call; everything lives until the arena is reset. */
typedef struct usc_pack_call {
    usc_result_row row;   /* what identifies it */
    const char *unjudged; /* why none of it can be judged; NULL else */
    const char *file;     /* of its operands, relative to the pack; NULL for none */
    const char *outputs;  /* JSON */
    int n_outputs;
    const char *rounded; /* the outputs where numbers among the arguments are rounded */
    const char *note; /* first, n_outputs of them, and what is to be said then; or NULL */
} usc_pack_call;

/** Reads and checks pack.json. Errors: USC_E_NOT_FOUND, USC_E_IO, USC_E_CORRUPT,
 * USC_E_VERSION, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_manifest_open(const char *pack, const usc_alloc *alloc,
                                           usc_manifest **out, usc_error *err);

void usc_manifest_close(usc_manifest *m);

/** Id of the trace that the pack was made from. */
const char *usc_manifest_trace_id(const usc_manifest *m);

/** The next call; *more is false behind the last. Errors: USC_E_CORRUPT. */
USC_NODISCARD usc_status usc_manifest_next(usc_manifest *m, usc_arena *arena,
                                           usc_pack_call *out, bool *more,
                                           usc_error *err);

/** Outputs of a call, n_outputs of them (`outputs` or `rounded`), with their operands out
 * of `tensors` (NULL where the call has none). Errors: USC_E_CORRUPT, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_manifest_outputs(usc_manifest *m, usc_arena *arena,
                                              const char *outputs, int n_outputs,
                                              const usc_safetensors *tensors,
                                              usc_pack_entry *out, usc_error *err);

#endif
