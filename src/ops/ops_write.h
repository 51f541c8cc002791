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

/** Adds NAME of ATen/ops/NAME_native.h. */
void usc_ops_put_root(usc_line *l, const usc_ops_schema *s);

/** Adds the kernel's name from everywhere. */
void usc_ops_put_qualified(usc_ops_writer *w, usc_line *l, const char *kernel);

bool usc_ops_is_structured(const usc_ops_entry *e);

/** Whether torch has it in a structured group: lists of tensors have another type then. */
bool usc_ops_in_group(const usc_ops_entry *e);

/** lerp_Scalar of at::meta::structured_lerp_Scalar, for an out= variant. */
const char *usc_ops_meta_name(usc_ops_writer *w, const usc_ops_entry *out);

/** Adds the class whose meta() and impl() are called. */
void usc_ops_put_class(usc_ops_writer *w, usc_line *l, const usc_ops_entry *out);

/** What a structured kernel gets in place of an argument; NULL: that. Of NULL: what comes
 * behind all. */
const usc_ops_precomputed *usc_ops_computed_of(const usc_ops_entry *out,
                                               const char *name);

/** Writes the header. */
void usc_ops_put_header(usc_ops_writer *w);

/** Adds the parameters of a structured kernel. */
void usc_ops_put_impl_parameters(usc_ops_writer *w, usc_line *l,
                                 const usc_ops_entry *out);

/** Adds "usc_status Tril(const usc_tensor *self, ..., usc_error *err)", of a kernel in C. */
void usc_ops_put_c_signature(usc_line *l, const usc_ops_entry *e, const char *kernel);

/** Writes the header of kernels in C. */
void usc_ops_put_c_header(usc_ops_writer *w, usc_line *l);

/** The functions of C++ that call kernels in C. */
void usc_ops_put_c_callers(usc_ops_writer *w);

/** What new operators with a kernel in C give, without memory. */
void usc_ops_put_c_meta(usc_ops_writer *w, const char *space);

/** SymInt where a kernel's name ends with _symint, as torch's own do. */
usc_ops_spelling usc_ops_spelling_of(const char *kernel);

void usc_ops_put_wrapper_name(usc_ops_writer *w, usc_line *l, const usc_ops_entry *e,
                              const char *key);

/** The autograd of new operators: by their `backward`, else a sentence at backward. */
void usc_ops_put_autograd(usc_ops_writer *w, const char *space);

#endif
