// SPDX-License-Identifier: Apache-2.0
// Operators as a file lists them: torch's own, and those of a device. ops_read.c reads
// them, ops_plan.c finds out their kinds and what is wrong, ops_write.c writes C++.
#ifndef USC_OPS_BOOK_H
#define USC_OPS_BOOK_H

#include <ulpscope/x/ops.h>

#include "base/keys.h"
#include "ops/ops_schema.h"
#include "ops/ops_yaml.h"

enum { USC_OPS_MOST_KEYS = 24 };

typedef struct usc_ops_dispatch {
    const char *key, *kernel;
    const usc_yaml *at; /* the text that names the kernel */
} usc_ops_dispatch;

/* An argument of a structured kernel in place of another, or behind all. */
typedef struct usc_ops_precomputed {
    const char *replaces; /* NULL: behind all */
    usc_ops_argument with[16];
    size_t n;
} usc_ops_precomputed;

enum { USC_OPS_MOST_COMPUTED = 8 };

typedef struct usc_ops_entry usc_ops_entry;

typedef struct usc_ops_group {
    const usc_ops_entry *functional, *inplace, *out;
} usc_ops_group;

struct usc_ops_entry {
    const usc_yaml *node, *func; /* the map, and the text of `func` */
    const char *space, *name;    /* "aten", "tril.out" */
    const usc_ops_schema *schema;
    usc_ops_dispatch dispatch[USC_OPS_MOST_KEYS];
    size_t n_dispatch;
    const char *structured, *delegate, *inherits; /* NULL: not said */
    const usc_yaml *precomputed, *autogen;
    const usc_yaml *backward; /* argument: expression */
    const usc_yaml *in_c;     /* the text of `kernel`; NULL: C++ */
    const usc_yaml *outputs;  /* of a kernel in C: an expression, or several */
    bool guard, same_device;

    /* ops_plan.c, of a device's entries */
    usc_ops_kind kind;
    const usc_ops_entry *torch_has; /* NULL: a new one */
    usc_ops_group group;            /* of the device's entries */
    usc_ops_group torch_group;
    usc_ops_precomputed *computed; /* of an out= variant */
    size_t n_computed;
};

typedef struct usc_ops_book {
    usc_arena arena;
    const char *path;
    usc_ops_entry *entry;
    size_t n;
    usc_keys by_name;   /* of space::name */
    usc_keys generated; /* names that torch generates: autogen lines */
    const char *cxx_space;
    bool external;          /* torchgen's form for backends elsewhere: a map */
    const char *class_name; /* of that form: the struct that has the kernels */

    usc_ops_problem *problem, *left_out;
    size_t n_problems, problems_size, n_left_out, left_out_size;
    bool lenient;
} usc_ops_book;

/** Adds a problem at a place; NULL: the file itself. */
void usc_ops_say(usc_ops_book *b, const usc_yaml *at, const char *format, ...)
    USC_PRINTF(3, 4);

/** Reads torch's own file. */
USC_NODISCARD usc_status usc_ops_read_native(usc_ops_book *b, const char *path,
                                             usc_error *err);

/** Reads a device's file, whose problems are in the book; `native` lends schemas. */
USC_NODISCARD usc_status usc_ops_read_device(usc_ops_book *b, const usc_ops_book *native,
                                             const char *path, usc_error *err);

/** The entry of a name, with or without aten::; NULL: none. */
const usc_ops_entry *usc_ops_find(const usc_ops_book *b, const char *name);

/** The name that may have been meant; NULL: none is near. */
const char *usc_ops_nearest(const usc_ops_book *b, const char *name);

/** The kernel of a key; NULL: none. */
const char *usc_ops_kernel_of(const usc_ops_entry *e, const char *key);

/** The members of the structured group of one of torch's entries; all NULL: it is in
 * none. */
usc_ops_group usc_ops_group_of(const usc_ops_book *native, const usc_ops_entry *e);

/** Whether torch makes it of other operators: a device needs nothing. */
bool usc_ops_is_composite(const usc_ops_entry *e);

/** The key of torch's kernel that works for all devices, CPU's if it is CUDA's too; NULL:
 * none. */
const char *usc_ops_common_kernel(const usc_ops_entry *e);

/** Kinds and problems of a device's file. */
void usc_ops_plan(usc_ops_book *b, const usc_ops_book *native,
                  const usc_ops_options *options);

/** What is wrong with an entry's `kernel: c` (ops_c.c). */
void usc_ops_check_c(usc_ops_book *b, const usc_ops_entry *e);

/** Whether any kernel is in C. */
bool usc_ops_has_c(const usc_ops_book *b);

/** The header, that of kernels in C, and the source, as text. */
void usc_ops_write(const usc_ops_book *b, const usc_ops_options *options,
                   usc_line *header, usc_line *c_header, usc_line *source);

/** The name of an operator as a name of C++: "tril_out". Memory: the arena's. */
const char *usc_ops_cxx_name(const char *name, usc_arena *arena);

void usc_ops_book_free(usc_ops_book *b);

#endif
