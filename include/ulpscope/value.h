// SPDX-License-Identifier: Apache-2.0
// The arguments, the state and the stack of a call as trees of values. JSON
// (docs/reference/trace-format.md, "Arguments") exists at the edge of a trace only.
// Neighbour: call.h.
//
// Threads: safe.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_VALUE_H
#define ULPSCOPE_VALUE_H

#include <ulpscope/status.h>

USC_BEGIN_DECLS

typedef enum usc_value_kind {
    USC_VALUE_NONE,
    USC_VALUE_BOOL,
    USC_VALUE_INT,
    USC_VALUE_FLOAT,
    USC_VALUE_COMPLEX,
    USC_VALUE_TEXT,
    USC_VALUE_DTYPE,
    USC_VALUE_DEVICE,
    USC_VALUE_LAYOUT,
    USC_VALUE_MEMORY_FORMAT,
    USC_VALUE_GENERATOR, /* text: its device */
    USC_VALUE_TENSOR,    /* the tensor of role `in` whose path is `place` */
    USC_VALUE_LIST,
    USC_VALUE_TUPLE, /* as LIST; where a tuple says something else (an index) */
    USC_VALUE_SLICE, /* as LIST, of three: begin, end, step */
    USC_VALUE_ELLIPSIS,
    USC_VALUE_MAP,  /* members by their names: of a state, or a dict among arguments */
    USC_VALUE_OTHER /* not kept; text: its type. Also what no format has: its JSON */
} usc_value_kind;

/** What the one member of an object is called that stands for values of a kind in the
 * JSON of arguments: "dtype". NULL: JSON has them. Memory: static. */
USC_API const char *usc_value_mark(usc_value_kind kind);

/** One value. An undefined tensor is NONE. */
typedef struct usc_value {
    usc_value_kind kind;
    union {
        bool truth;
        int64_t integer;
        double number[2];       /* FLOAT: the first; COMPLEX: real and imaginary part */
        const char *text;       /* TEXT and whatever has a name */
        struct usc_value *item; /* LIST, TUPLE, SLICE */
        const struct usc_argument *member; /* MAP */
    };
    int64_t n;         /* items or members */
    const char *place; /* of a TENSOR and an OTHER that were read: "args[0][1]" */
} usc_value;

/** One argument, or member of a map: by position where `name` is NULL, else by keyword.
 */
typedef struct usc_argument {
    const char *name;
    usc_value value;
} usc_argument;

/** All arguments of a call, those by position first. */
typedef struct usc_arguments {
    int64_t n;
    const usc_argument *argument;
    void *memory; /* of usc_arguments_free */
} usc_arguments;

/**
 * Reads the JSON text of a call's arguments; NULL and "" are no arguments. An object that
 * is no value of the format, and what lies deeper than 100 levels, is OTHER: nothing is
 * guessed.
 *
 * Memory:  *out is freed by usc_arguments_free and does not need `json`.
 * Threads: safe.
 * Errors:  USC_E_CORRUPT (err->where: byte of `json`; arguments that are no list, or
 *          none by names: -1), USC_E_NOMEM; *out is empty then.
 */
USC_API USC_NODISCARD usc_status usc_arguments_read(const char *json, usc_arguments *out,
                                                    usc_error *err);

/**
 * Reads the JSON text of a call's state or stack: members of an object by their names, or
 * items of a list. Objects in it are maps, none stands for anything else.
 *
 * Memory:  as usc_arguments_read.
 * Threads: safe.
 * Errors:  as usc_arguments_read.
 */
USC_API USC_NODISCARD usc_status usc_members_read(const char *json, usc_arguments *out,
                                                  usc_error *err);

/** Whether a value is made of `n` items. */
USC_API bool usc_value_has_items(const usc_value *value);

/** A value that has neither items nor members as a person would write it, cut to `size`
 * bytes with the zero: True, 2.0, float32. "" of the others. */
USC_API void usc_value_text(const usc_value *value, char *out, size_t size);

/** Frees; an empty one is allowed. */
USC_API void usc_arguments_free(usc_arguments *a);

USC_END_DECLS
#endif
