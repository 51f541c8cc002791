// SPDX-License-Identifier: Apache-2.0
// An import under way. import.c begins and ends it; import_msprobe.c, import_ascend_v1.c
// and import_ditorch.c read one kind of dump each; import_value.c makes arguments of what
// they find, import_tensor.c tensors.
#ifndef USC_FOREIGN_IMPORTING_H
#define USC_FOREIGN_IMPORTING_H

#include <ulpscope/trace.h>
#include <ulpscope/x/foreign.h>
#include <ulpscope/x/writing.h>

#include "base/arena.h"
#include "base/keys.h"
#include "base/path.h"
#include "foreign/api_names.h"
#include "foreign/torch_files.h"
#include "json/json_stream.h"

typedef struct usc_import_arg {
    usc_role role;
    const char *path;
    int64_t tensor, storage;
    const usc_json *from; /* the dump's description; NULL: none */
    struct usc_import_arg *next;
} usc_import_arg;

/* The call that is being put together. */
typedef struct usc_import_call {
    int64_t sequence;
    usc_writing args;
    usc_import_arg *first, *last;
    const char *cast_to; /* dtype that a call gives which was asked for one; else NULL */
    usc_dtype
        narrow_to; /* to which autocast rounded its float32 inputs; NONE: it did not */
    bool narrowed; /* there was one */
} usc_import_call;

typedef struct usc_importing {
    const usc_import_options *options;
    const usc_run_hooks *hooks;
    usc_import_counts *counts;
    const char *device;
    usc_trace_writer *trace;
    usc_torch_files files;
    usc_arena texts; /* of the call at hand */
    usc_import_call call;
    const char *file;           /* whose member is at hand, for errors */
    const char *member;         /* its name */
    char folder[USC_PATH_SIZE]; /* of its tensors */
    int64_t n_tensors, n_storages, n_versions, n_ops, n_modules, n_stacks;
    usc_keys ops, modules; /* of the trace: name -> row */
    usc_keys calls; /* of this step: name -> sequence; negative: asks for no gradient */
    usc_keys stacks,
        places; /* of this step: name -> stack; -> module, or -1: optimizer */
    int64_t step, first_of_step;
    int64_t done, total;  /* members */
    char said_device[64]; /* by the dump */
    char part[USC_PATH_SIZE];
} usc_importing;

/* ---- import.c: rows ---- */

/** Whether the user wants to stop; tells progress. */
bool usc_importing_stopped(usc_importing *im);

/** Begins a call: forgets the last one. */
void usc_importing_begin(usc_importing *im, const char *file, const char *member);

/** What is known of a call besides its arguments. */
typedef struct usc_import_facts {
    const char *op;
    usc_phase phase;
    int64_t module, stack;
    const char *state; /* NULL: nothing */
} usc_import_facts;

/** State of a call: its name in the dump, of a backward pass (`forward` > 0) its forward
 * call. `of_node`: its results are the gradients that the function's last node of
 * autograd gave, not those of the function's arguments. Memory: of the call. */
const char *usc_importing_state(usc_importing *im, const char *dumped, int64_t forward,
                                bool of_node);

/** Whether an input of the call asks for a gradient. */
bool usc_importing_asks(const usc_importing *im);

/** Puts the call with its arguments. */
USC_NODISCARD usc_status usc_importing_put(usc_importing *im,
                                           const usc_import_facts *facts, usc_error *err);

/** Begins and ends a step. */
void usc_importing_begin_step(usc_importing *im, int64_t step);
USC_NODISCARD usc_status usc_importing_end_step(usc_importing *im, usc_error *err);

/** The row of a module. */
USC_NODISCARD usc_status usc_importing_module(usc_importing *im, const char *path,
                                              const char *class_name, int64_t *out,
                                              usc_error *err);

/** An error about the member at hand: `FILE: MEMBER: ARGUMENT: text`. */
usc_status usc_importing_wrong(const usc_importing *im, usc_status st,
                               const char *argument, usc_error *err, const char *format,
                               ...) USC_PRINTF(5, 6);

/* ---- import_places.c: stacks and modules ---- */

/** Reads stack.json into rows; a file that is not there is none. */
USC_NODISCARD usc_status usc_importing_stacks(usc_importing *im, const char *path,
                                              usc_error *err);

/** Reads construct.json. */
USC_NODISCARD usc_status usc_importing_construct(usc_importing *im, const char *path,
                                                 usc_error *err);

/* ---- import_value.c ---- */

/** Appends a value of msprobe's kind to the arguments, and its tensors to the call. */
USC_NODISCARD usc_status usc_import_value(usc_importing *im, const usc_json *value,
                                          const char *path, usc_error *err);

/** The arguments of the call: a list of values and an object of them. */
USC_NODISCARD usc_status usc_import_arguments(usc_importing *im, const usc_json *args,
                                              const usc_json *kwargs, usc_error *err);

/** Takes what a call returned, a list of values. `written` is the argument that the first
 * of them is, too; NULL: none. */
USC_NODISCARD usc_status usc_import_results(usc_importing *im, const usc_json *list,
                                            const usc_import_arg *written,
                                            usc_error *err);

/** The argument of that path before the call; NULL. */
const usc_import_arg *usc_import_input(const usc_importing *im, const char *path);

/* ---- import_tensor.c ---- */

/** What a tensor is to the call. */
typedef struct usc_import_place {
    usc_role role;
    const char *path;
    const usc_json *from;     /* how the dump describes it; NULL: it does not */
    const usc_import_arg *on; /* in whose storage the call wrote it; NULL: its own */
} usc_import_place;

/** Adds the tensor that `to->from` describes to the call. */
USC_NODISCARD usc_status usc_import_tensor(usc_importing *im, const usc_import_place *to,
                                           usc_error *err);

/** Adds a tensor that has its rows. */
USC_NODISCARD usc_status usc_import_add(usc_importing *im, const usc_import_place *to,
                                        int64_t tensor, int64_t storage, usc_error *err);

/** Whether an error is about one file, and an import may go on without it. */
bool usc_import_is_damage(usc_status st);

/** Puts a storage, with its bytes; `on`: as the call left the one of that argument. */
USC_NODISCARD usc_status usc_import_storage(usc_importing *im, const void *bytes,
                                            int64_t size, const usc_import_arg *on,
                                            int64_t *storage, usc_error *err);

/** Adds a tensor of the storage that was put last, whose bytes these are. */
USC_NODISCARD usc_status usc_import_view(usc_importing *im, const usc_import_place *to,
                                         const usc_torch_tensor *t, const void *bytes,
                                         int64_t storage, usc_error *err);

/* ---- import_torch.c: files of torch that hold a call's arguments or results ---- */

/** A tensor of such a file. */
typedef struct usc_import_part {
    usc_role role;
    const char *path; /* its place in the call; NULL: none */
    usc_torch_tensor seen;
    const usc_import_arg *arg; /* what it became */
    int64_t storage_bytes;
} usc_import_part;

/** What such a file held. Memory: of the call. */
typedef struct usc_import_parts {
    usc_import_part *at;
    int64_t n;
} usc_import_parts;

/** Opens a file, whose value is an object with `args`, and for inputs `kwargs`. *value as
 * usc_torch_files_open gives it; its tensors have to be taken before the next file. */
USC_NODISCARD usc_status usc_import_open(usc_importing *im, const char *path,
                                         const usc_json **value, usc_import_parts *parts,
                                         usc_error *err);

/** Takes `args` and `kwargs` of the open file as the arguments of the call. */
USC_NODISCARD usc_status usc_import_file_arguments(usc_importing *im,
                                                   const usc_json *value,
                                                   usc_import_parts *parts,
                                                   usc_error *err);

/** Takes a list of the open file as results: out[0], out[1], .. `written`: an input that
 * the first of them is, too; NULL: none. */
USC_NODISCARD usc_status usc_import_file_results(usc_importing *im, const usc_json *list,
                                                 usc_import_parts *parts,
                                                 const usc_import_part *written,
                                                 usc_error *err);

/* ---- the kinds ---- */

/** The folders of calls in a capture of ditorch, in their order. */
typedef struct usc_captures {
    struct usc_captured *at;
    size_t n, room;
    int64_t others; /* that are none */
} usc_captures;

/** Looks for a capture of ditorch in DUMP and below. */
USC_NODISCARD usc_status usc_import_find_ditorch(const usc_importing *im,
                                                 const char *dump, usc_captures *out,
                                                 usc_error *err);

/** Imports what usc_import_find_ditorch found. */
USC_NODISCARD usc_status usc_import_ditorch(usc_importing *im,
                                            const usc_captures *captures, bool *stopped,
                                            usc_error *err);
void usc_captures_free(usc_captures *c);

USC_NODISCARD usc_status usc_import_msprobe(usc_importing *im, const char *dump,
                                            bool *stopped, usc_error *err);

/** What the name of a file of calls has at most. */
enum { USC_IMPORT_NAME = 256 };

/** Whether `dump` is of that kind, by its names or by how the file begins: where it lies
 * and the name of the file of calls, "" if not. */
USC_NODISCARD usc_status usc_import_find_ascend_v1(const usc_importing *im,
                                                   const char *dump, char *folder,
                                                   char name[USC_IMPORT_NAME],
                                                   usc_error *err);

/** Imports what usc_import_find_ascend_v1 found. */
USC_NODISCARD usc_status usc_import_ascend_v1(usc_importing *im, const char *folder,
                                              const char *name, bool *stopped,
                                              usc_error *err);

#endif
