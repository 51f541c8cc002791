// SPDX-License-Identifier: Apache-2.0
// All calls of a trace, each in some hundred bytes: what pairing and a first comparison
// need. Texts and numbers are read again (usc_trace_read_call) where calls differ.
#ifndef USC_DIFF_LISTS_H
#define USC_DIFF_LISTS_H

#include <ulpscope/x/diff.h>

enum {
    USC_DIFF_DRAWS = 1,
    USC_DIFF_UNWRITTEN = 2,
    USC_DIFF_FORWARD = 4,
    USC_DIFF_BACKWARD = 8,
    USC_DIFF_ALLOWED = 16,
    USC_DIFF_ACCEPTED = 32
};

typedef struct usc_diff_call {
    int64_t sequence, step;
    int64_t parent;    /* sequence; 0: none */
    int64_t begun;     /* of a module's forward: calls before it was entered */
    int64_t forward;   /* of a module's backward: its forward; 0: not known */
    int64_t twin;      /* of the same: one before it, of another result; of a forward:
                          the module's backward in a step before; 0: none */
    int64_t first_arg; /* of the list's */
    int n_args;
    int flags; /* DRAWS random numbers; leaves memory UNWRITTEN; a module's FORWARD, or
                  BACKWARD; is ALLOWED to have no partner, ACCEPTED without a verdict */
    uint64_t phase;
    uint64_t random; /* what it draws from */
} usc_diff_call;

typedef struct usc_diff_arg {
    uint64_t path; /* role and path */
    int64_t tensor;
    int64_t writer; /* call of the trace that wrote it, or module that gave it; 0: none;
                       -1: not known, or none before this one */
    int role;       /* usc_role */
} usc_diff_arg;

typedef struct usc_diff_tensor {
    int64_t id, version, blob;
    uint64_t shape, dtype, view; /* view: all that places it in its blob */
    uint64_t stats;              /* 0: none */
    bool requires_grad;
} usc_diff_tensor;

typedef struct usc_diff_version {
    int64_t id, writer, blob, storage;
} usc_diff_version;

/* What a storage is known by: the call that touched it first. */
typedef struct usc_diff_storage {
    int64_t id;
    uint64_t owner; /* 0: none yet */
} usc_diff_storage;

/* A row of op, module or blob: its text as a hash. */
typedef struct usc_diff_named {
    int64_t id;
    uint64_t hash;
    int flags;
} usc_diff_named;

/* Rows of one size, ascending by an id that is their first member. */
typedef struct usc_diff_table {
    void *row;
    int64_t n, room;
    size_t size;
} usc_diff_table;

typedef struct usc_diff_list {
    usc_trace *trace;
    int64_t n;
    usc_diff_call *call;
    usc_diff_item *item;
    usc_diff_arg *arg;
    usc_diff_table calls, args, tensors, versions, storages, blobs, ops, modules;
} usc_diff_list;

/** Reads the calls that the options ask for. Memory: freed by usc_diff_list_free, also
 * after a failure. Errors: those of the trace, USC_E_NOMEM. */
USC_NODISCARD usc_status usc_diff_list_read(usc_trace *t, const usc_diff_options *options,
                                            usc_diff_list *out, usc_error *err);

/** Frees; an empty one is allowed. */
void usc_diff_list_free(usc_diff_list *l);

/** Of a module's backward pass: takes its forward from the state of its row. backward.c
 */
void usc_diff_take_backward(usc_diff_call *call, const char *state);

/** Of backward passes of modules: those around them; those of forwards are known. Errors:
 * USC_E_NOMEM. */
USC_NODISCARD usc_status usc_diff_list_nest(usc_diff_list *l, usc_error *err);

/** Whether what a backward pass gives is said to be by one around it already. */
bool usc_diff_gave_before(const usc_diff_list *l, const usc_diff_call *call,
                          int64_t writer);

/** Sets the places of calls: the step less `shift`, and the phase. */
void usc_diff_list_place(usc_diff_list *l, int64_t shift);

/** The row of that id; NULL where there is none. */
void *usc_diff_table_find(const usc_diff_table *t, int64_t id);

/** Index of a call by its number; -1 where there is none. */
int64_t usc_diff_list_index(const usc_diff_list *l, int64_t sequence);

/** Hash of the bytes that a tensor lies in; 0: they were not kept. */
uint64_t usc_diff_list_bytes(const usc_diff_list *l, const usc_diff_tensor *t);

#endif
