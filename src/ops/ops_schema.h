// SPDX-License-Identifier: Apache-2.0
// A function schema of torch: "tril.out(Tensor self, int diagonal=0, *, Tensor(a!) out) ->
// Tensor(a!)", and its types in C++.
#ifndef USC_OPS_SCHEMA_H
#define USC_OPS_SCHEMA_H

#include "base/arena.h"
#include "base/line.h"

/* Tensor(a!)?[2]? : the base, what it may be, and once more of the list. */
typedef struct usc_ops_type {
    const char *base;
    const char *alias; /* "a!", "a", "a -> *"; NULL: none */
    bool optional;     /* the base may be missing */
    bool list;
    bool list_optional; /* the list may be missing */
    const char *length; /* of the list; "" where it says none */
} usc_ops_type;

typedef struct usc_ops_argument {
    usc_ops_type type;
    const char *name;      /* "" of a return without one */
    const char *otherwise; /* its default; NULL: none */
    bool by_name;          /* behind the star */
} usc_ops_argument;

typedef enum usc_ops_variant {
    USC_OPS_FUNCTIONAL,
    USC_OPS_INPLACE,
    USC_OPS_OUT
} usc_ops_variant;

typedef struct usc_ops_schema {
    const char *space;          /* "aten" */
    const char *base;           /* "tril_" */
    const char *overload;       /* "" where it has none */
    const char *name;           /* "tril.out", without aten:: */
    usc_ops_argument *in, *out; /* arguments without and with what out= variants write */
    size_t n_in, n_out;
    usc_ops_argument *returned;
    size_t n_returned;
    usc_ops_variant variant;
} usc_ops_schema;

/** Reads a schema; NULL with a sentence in `why` where it is none, or without memory. */
usc_ops_schema *usc_ops_schema_read(const char *text, usc_arena *arena, const char **why);

/** Whether a value is written: the alias says !. */
bool usc_ops_is_written(const usc_ops_type *t);
bool usc_ops_is_tensor(const usc_ops_type *t);

/* How an argument is spelled. */
typedef enum usc_ops_spelling {
    USC_OPS_WRAPPER,    /* what the dispatcher calls; numbers are numbers */
    USC_OPS_SYMBOLIC,   /* the same with SymInt */
    USC_OPS_STRUCTURED, /* of meta and impl */
} usc_ops_spelling;

/** The type in C++; NULL: there is none here. Memory: static, or the arena's. */
const char *usc_ops_cxx_type(const usc_ops_type *t, usc_ops_spelling how, bool structured,
                             usc_arena *arena);

/** What a function returns in C++. */
const char *usc_ops_cxx_returned(const usc_ops_schema *s, usc_arena *arena);

/** Adds "const at::Tensor &self, int64_t diagonal, at::Tensor &out". */
void usc_ops_put_parameters(usc_line *l, const usc_ops_schema *s, usc_ops_spelling how,
                            bool structured, usc_arena *arena);

/** Adds a schema as torch writes it, without the name. */
void usc_ops_put_signature(usc_line *l, const usc_ops_schema *s);

#endif
