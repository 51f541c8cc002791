// SPDX-License-Identifier: Apache-2.0
// What the files that write C++ share.
#ifndef USC_OPS_WRITE_H
#define USC_OPS_WRITE_H

#include "ops/ops_book.h"

typedef struct usc_ops_writer {
    const usc_ops_book *book;
    const usc_ops_options *options;
    usc_line *header, *source;
    usc_arena *arena;
    usc_keys declared; /* lines that stand once */
    const char *space; /* of the kernels */
    bool failed;
} usc_ops_writer;

/** SymInt where a kernel's name ends with _symint, as torch's own do. */
usc_ops_spelling usc_ops_spelling_of(const char *kernel);

void usc_ops_put_wrapper_name(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                              const char *key);

/** The autograd of new operators: by their `backward`, else a sentence at backward. */
void usc_ops_put_autograd(usc_ops_writer *w, const char *space);

#endif
