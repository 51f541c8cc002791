// SPDX-License-Identifier: Apache-2.0
// The status of a fallible call and the caller-owned error that explains it.
// NULL: where a contract says so; `err` may always be.
#ifndef ULPSCOPE_STATUS_H
#define ULPSCOPE_STATUS_H

#include <ulpscope/api.h>

USC_BEGIN_DECLS

/* The one list: enum, usc_status_text() and Python's exceptions are made from it. */
#define USC_STATUS_LIST(X)                                                               \
    X(OK, 0, "success")                                                                  \
    X(E_NOMEM, 1, "out of memory")                                                       \
    X(E_SHAPE, 2, "shapes differ or are not allowed here")                               \
    X(E_DTYPE, 3, "dtype not allowed here")                                              \
    X(E_RANGE, 4, "size or value out of range")                                          \
    X(E_ARG, 5, "bad argument")                                                          \
    X(E_IO, 6, "the operating system refused")                                           \
    X(E_CORRUPT, 7, "file is damaged")                                                   \
    X(E_VERSION, 8, "file was written by a newer version")                               \
    X(E_NOT_FOUND, 9, "not found")                                                       \
    X(E_EXISTS, 10, "already there")                                                     \
    X(E_BUSY, 11, "in use by another process")                                           \
    X(E_UNSUPPORTED, 12, "not supported here")

typedef enum usc_status {
#define USC_STATUS_ENUM(name, value, text) USC_##name = (value),
    USC_STATUS_LIST(USC_STATUS_ENUM)
#undef USC_STATUS_ENUM
} usc_status;

#define USC_ERROR_TEXT 512

/** What went wrong; owned by the caller, valid after a call that returned not USC_OK. */
typedef struct usc_error {
    usc_status status;
    int64_t where; /* axis, element, byte or row; -1 where no position applies */
    char text[USC_ERROR_TEXT];
} usc_error;

/**
 * Short English text of a status, e.g. "out of memory"; "unknown status" for other
 * values.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_status_text(usc_status status);

/**
 * Name of a status as it stands in the list, e.g. "E_NOMEM"; "E_UNKNOWN" for other
 * values.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_status_name(usc_status status);

/**
 * What to do where a trace cannot be read, as the end of a sentence: "; it is damaged,
 * capture it or copy it again"; "" where the status says all.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_status_advice(usc_status status);

/**
 * Name of a signal without its SIG, e.g. "SEGV"; NULL for a number that has none.
 *
 * Memory:  static, never freed.
 * Threads: safe.
 */
USC_API const char *usc_signal_name(int number);

/**
 * Fills `err` (NULL is allowed) and returns `status`, so that a failing line reads
 * `return usc_error_set(err, USC_E_SHAPE, axis, "axis %d: %d against %d", ...)`.
 *
 * Memory:  a text longer than USC_ERROR_TEXT is cut.
 * Errors:  none of its own: `status`.
 * Threads: safe while nobody else uses `*err`.
 */
USC_API usc_status usc_error_set(usc_error *err, usc_status status, int64_t where,
                                 const char *format, ...) USC_PRINTF(4, 5);

USC_END_DECLS
#endif
