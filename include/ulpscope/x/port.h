// SPDX-License-Identifier: Apache-2.0
// Sources written for CUDA, in C++ and Python, under the names of another device: tokens,
// never parts of words. What a table of names cannot settle is listed for a human, never
// changed in silence. What is ported and what is not: docs/how-to/port-cuda-code.md.
//
// Threads: safe; two ports of one folder at a time are not.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_X_PORT_H
#define ULPSCOPE_X_PORT_H

#include <stdio.h>

#include <ulpscope/status.h>

USC_BEGIN_DECLS

/* id, name */
#define USC_PORT_TARGET_LIST(X)                                                          \
    X(MUSA, "musa")                                                                      \
    X(SIM, "sim")                                                                        \
    X(NPU, "npu")                                                                        \
    X(XPU, "xpu")                                                                        \
    X(CUDA, "cuda") /* back from musa, by the same table */

typedef enum usc_port_target {
#define USC_PORT_TARGET_ENUM(id, name) USC_PORT_##id,
    USC_PORT_TARGET_LIST(USC_PORT_TARGET_ENUM)
#undef USC_PORT_TARGET_ENUM
        USC_N_PORT_TARGETS
} usc_port_target;

/* id, name */
#define USC_PORT_LANGUAGE_LIST(X)                                                        \
    X(OTHER, "other") /* copied as it is */                                              \
    X(CXX, "cxx")                                                                        \
    X(PYTHON, "python")                                                                  \
    X(BUILD, "build") /* CMake, make, shell, yaml: what they name is listed */

typedef enum usc_port_language {
#define USC_PORT_LANGUAGE_ENUM(id, name) USC_PORT_##id,
    USC_PORT_LANGUAGE_LIST(USC_PORT_LANGUAGE_ENUM)
#undef USC_PORT_LANGUAGE_ENUM
        USC_N_PORT_LANGUAGES
} usc_port_language;

/** The zero value ports everything to musa, into a folder beside the source. */
typedef struct usc_port_options {
    usc_port_target target;
    const char *map;     /* a JSON file of names, old to new, that win; NULL: none */
    bool no_default_map; /* the map alone */
    const char *const *ignore; /* globs of paths below the source: copied as they are */
    size_t n_ignore;
    unsigned only;      /* bits 1 << usc_port_language; 0: all */
    const char *launch; /* the Python files that load the device; NULL: each that needs */
    bool comments;      /* names in comments, too */
    bool rename_own;    /* names that the source declares and that say cuda, too */
    const char *out;    /* folder, or file where the source is one; NULL: beside it */
    bool in_place;
    bool dry_run; /* nothing is written */
    bool diff;    /* a diff of each file */
    bool lower;   /* usc_port_bytes alone: kernels' files as a compiler of C++ takes them
                   * for the simulated device (glue/grid). Names stay; what it does not have
                   * is listed */
} usc_port_options;

/** Something that is left for a human. */
typedef struct usc_port_left {
    int64_t line;
    const char *construct; /* "inline PTX" */
    const char *excerpt;   /* of the source, a word or two */
    const char *advice;    /* what to do */
} usc_port_left;

/** One file that is changed, renamed or has something left. */
typedef struct usc_port_file {
    const char *path; /* below the source folder */
    const char *to;   /* its name after the port */
    usc_port_language language;
    int64_t n_changes;
    const usc_port_left *left;
    size_t n_left;
    const char *after; /* its bytes; NULL from usc_port_tree, which writes them */
    size_t after_size;
    const char *diff; /* unified; "" where nothing changes, and where not asked for */
} usc_port_file;

/** What a port came to. */
typedef struct usc_port_result {
    const char *out;           /* where it lies; the source where in place */
    const usc_port_file *file; /* in the order of their paths */
    size_t n_files;
    int64_t n_seen, n_changed, n_renamed, n_changes, n_left;
} usc_port_result;

/** Name of a target: "musa"; "unknown" for other values. Memory: static. */
USC_API const char *usc_port_target_text(usc_port_target target);

/** Name of a kind of file: "cxx"; "unknown" for other values. Memory: static. */
USC_API const char *usc_port_language_text(usc_port_language language);

/**
 * Ports `size` bytes in memory, of a file called `name`, whose ending tells its language.
 * Other files are not looked for.
 *
 * Memory:  *out holds one file and is freed by usc_port_free; NULL after an error.
 * Errors:  USC_E_NOMEM; of the map as usc_port_tree.
 */
USC_API USC_NODISCARD usc_status usc_port_bytes(const char *name, const void *data,
                                                size_t size,
                                                const usc_port_options *options,
                                                usc_port_result **out, usc_error *err);

/**
 * Ports a folder, or a file. The output appears whole or not at all; in place each file is
 * replaced in one step, and what is needed to go back lies in the folder's
 * `.ulpscope-port` before the first one is. A file that cannot be ported (binary, UTF-16,
 * a text that never ends) is left as it is and listed.
 *
 * Memory:  *out is freed by usc_port_free; NULL after an error.
 * Errors:  USC_E_NOT_FOUND, USC_E_IO; USC_E_EXISTS (the output is there and not empty, or
 *          an earlier port in place was not taken back); USC_E_ARG (the output lies in the
 *          source, a bad map with its line); USC_E_RANGE (an empty source), USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_port_tree(const char *source,
                                               const usc_port_options *options,
                                               usc_port_result **out, usc_error *err);

/**
 * Takes a port in place back: every byte and name as it was. Nothing is changed where a
 * file was edited since; it is named.
 *
 * Errors:  USC_E_NOT_FOUND (was not ported in place), USC_E_EXISTS (edited since),
 *          USC_E_CORRUPT, USC_E_IO, USC_E_NOMEM.
 */
USC_API USC_NODISCARD usc_status usc_port_revert(const char *source, int64_t *n_files,
                                                 usc_error *err);

/** Writes what a port came to as one JSON object. Errors: USC_E_IO, USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_port_json(const usc_port_result *result,
                                               const usc_port_options *options, FILE *to,
                                               usc_error *err);

/** The same as one page of HTML; with diffs where they were asked for. Errors: USC_E_IO,
 * USC_E_NOMEM. */
USC_API USC_NODISCARD usc_status usc_port_html(const usc_port_result *result,
                                               const usc_port_options *options, FILE *to,
                                               usc_error *err);

/** What a tree of sources says of a name, from the least on. */
typedef enum usc_port_found {
    USC_PORT_FOUND_NOWHERE,
    USC_PORT_FOUND_NAMED, /* the word is there, and no statement of it was recognised */
    USC_PORT_FOUND_DECLARED, /* and no more */
    USC_PORT_FOUND_DEFINED
} usc_port_found;

typedef struct usc_port_place {
    bool
        of_class; /* given: what is emitted with a class (its table of virtual functions):
                    * where one of its functions is defined */
    usc_port_found found;
    bool header; /* where it is a file that others include */
    int64_t line;
    char path[512]; /* below the tree */
} usc_port_place;

/**
 * Looks for `n` names of C++ (`at::cuda::f`, without arguments) in a tree of sources. What
 * a port has one word for the other counts as the same (`at::musa::f`). Definitions in
 * files that are compiled come before those of headers. At most 32,768 names.
 *
 * Errors:  USC_E_NOT_FOUND, USC_E_IO, USC_E_NOMEM; files that cannot be read are passed
 *          over.
 */
USC_API USC_NODISCARD usc_status usc_port_where(const char *source,
                                                const char *const *name,
                                                usc_port_place *place, size_t n,
                                                usc_error *err);

/** Frees; NULL is allowed. */
USC_API void usc_port_free(usc_port_result *result);

USC_END_DECLS
#endif
