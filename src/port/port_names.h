// SPDX-License-Identifier: Apache-2.0
// The table of names: data, one row for a name with what it is called at each target. A
// name is a whole chain of words ("at::cuda", "torch.cuda.amp"); the longest one counts.
#ifndef USC_PORT_NAMES_H
#define USC_PORT_NAMES_H

#include <ulpscope/x/port.h>

#include "base/arena.h"

typedef enum usc_port_row_kind {
    USC_PORT_CXX_NAME, /* words joined by :: */
    USC_PORT_CXX_CALL, /* a method, behind . or -> */
    USC_PORT_INCLUDE,  /* a path, without quotes; with quotes in what it becomes: those */
    USC_PORT_PY_NAME,  /* words joined by dots; X("device" puts an argument first */
    USC_PORT_PY_IMPORT,
    USC_PORT_PY_CALL,    /* a method, behind a dot */
    USC_PORT_PY_TEXT,    /* a whole text in quotes */
    USC_PORT_PY_WORD,    /* the name of an argument */
    USC_PORT_KEY,        /* a dispatch key */
    USC_PORT_BUILD_NAME, /* of CMake */
    USC_PORT_FIRST,      /* not a row: the first word of each CXX_NAME */
    USC_PORT_PY_FIRST,   /* the same of each PY_NAME */
    USC_N_PORT_ROW_KINDS
} usc_port_row_kind;

typedef struct usc_port_row {
    usc_port_row_kind kind;
    const char *from;
    const char *to[USC_N_PORT_TARGETS]; /* as it is: stays; NULL: left for a human */
} usc_port_row;

/* Names that differ by what they begin with alone. */
typedef struct usc_port_family {
    usc_port_row_kind kind;
    const char *from;
    const char *to[USC_N_PORT_TARGETS];
    const char *words; /* what follows, apart by spaces */
} usc_port_family;

extern const usc_port_row usc_port_rows_cxx[], usc_port_rows_python[],
    usc_port_rows_build[];
/* Namespaces that are passed through: what stands behind them may be in a row. */
extern const char *const usc_port_open_names[];

extern const usc_port_family usc_port_families_cxx[], usc_port_families_python[],
    usc_port_families_build[];

typedef struct usc_port_name {
    const char *from, *to;
    usc_port_row_kind kind;
    const char *several; /* where the target has more than one name for it: those */
} usc_port_name;

enum { USC_PORT_LOOKS = 1 << 16 };

/** The names of one target. Zero it to begin. */
typedef struct usc_port_names {
    usc_arena *arena;
    usc_port_name *slot;                /* open addressing */
    const char *device, *backend, *api; /* of the source: "cuda", "nccl", "CUDA" */
    size_t n, size;
    uint8_t look[USC_PORT_LOOKS / 8]; /* of names in C++ that rules look at: see there */
    bool failed;
} usc_port_names;

/* What most names are told apart by without a hash: first and last byte, and length. */
static inline size_t usc_port_look_of(const char *name, size_t n)
{
    return ((size_t)name[0] & 63) | ((size_t)name[n - 1] & 31) << 6 | (n & 31) << 11;
}

/** Makes rules look at a name, and at those that look like it. */
void usc_port_names_look(usc_port_names *names, const char *name);

/** Whether a rule may look at a name of n > 0 bytes; false: no row is about it. */
static inline bool usc_port_names_may(const usc_port_names *names, const char *name,
                                      size_t n)
{
    const size_t bit = usc_port_look_of(name, n);
    return (names->look[bit / 8] >> bit % 8 & 1) != 0;
}

/** The table of a target, and the map over it. Errors: as usc_port_tree of the map. */
USC_NODISCARD usc_status usc_port_names_open(usc_port_names *names, usc_arena *arena,
                                             const usc_port_options *options,
                                             usc_error *err);

/** A name that is there stands for several: none is taken, all are told. */
void usc_port_names_put_several(usc_port_names *names, usc_port_row_kind kind,
                                const char *from, const char *several);

/** The row of a name of `n` bytes; NULL where there is none. */
const usc_port_name *usc_port_names_find(const usc_port_names *names,
                                         usc_port_row_kind kind, const char *from,
                                         size_t n);

/** Puts a row in, or over one that is there. */
void usc_port_names_put(usc_port_names *names, usc_port_row_kind kind, const char *from,
                        const char *to);

/** Reads a map over the names. */
USC_NODISCARD usc_status usc_port_map_read(usc_port_names *names, const char *path,
                                           usc_error *err);

void usc_port_names_close(usc_port_names *names);

#endif
