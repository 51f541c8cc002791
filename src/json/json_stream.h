// SPDX-License-Identifier: Apache-2.0
// A JSON object of any size, member by member: only the member at hand is in memory. What
// Python's json module writes beyond JSON is read too: NaN, Infinity and -Infinity become
// the texts "nan", "inf" and "-inf", whole numbers beyond 64 bits numbers with a point.
// Neighbour: json.h reads what fits.
#ifndef USC_JSON_STREAM_H
#define USC_JSON_STREAM_H

#include "base/line.h"
#include "json/json.h"

enum { USC_JSON_STREAM_LEVELS = 8 };

typedef struct usc_json_stream {
    const char *name; /* of the file, begins the text of an error; borrowed */
    FILE *file;
    int64_t at;    /* bytes read so far */
    int64_t size;  /* of the file; -1: nobody knows */
    int64_t limit; /* bytes that one member may have */
    int level;     /* objects around the next member */
    int ahead;     /* the byte to be read next; -2: not read yet */
    bool first[USC_JSON_STREAM_LEVELS + 1]; /* whether the object has had no member yet */
    bool waits; /* the value of the member at hand was not taken yet */
    usc_line key, value;
} usc_json_stream;

/**
 * Opens a file whose outermost value is an object. Zero the stream before; it is closed
 * by usc_json_stream_close also after a failure.
 *
 * Errors:  USC_E_NOT_FOUND, USC_E_IO; USC_E_CORRUPT where it begins with no object.
 */
USC_NODISCARD usc_status usc_json_stream_open(usc_json_stream *s, const char *path,
                                              int64_t limit, usc_error *err);

/** Closes; a zeroed one is allowed. */
void usc_json_stream_close(usc_json_stream *s);

/**
 * Goes to the next member of the object at hand; what was not taken of the one before is
 * passed over. *key is its name, NULL at the end of the object, after which the stream is
 * in the object around it; behind the outermost there must be nothing.
 *
 * Memory:  *key until the next call with `s`.
 * Errors:  USC_E_CORRUPT (err->where: byte; the text tells a file that was cut off from
 *          one that is no JSON), USC_E_IO, USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_json_stream_next(usc_json_stream *s, const char **key,
                                              usc_error *err);

/** Takes the value of the member at hand, as the only item of a list, which is freed by
 * usc_json_free. Errors: USC_E_CORRUPT, USC_E_RANGE (longer than the limit), USC_E_IO,
 * USC_E_NOMEM. */
USC_NODISCARD usc_status usc_json_stream_value(usc_json_stream *s, usc_json **out,
                                               usc_error *err);

/** Goes into the member at hand, whose value is an object: its members come next. Errors:
 * USC_E_CORRUPT (no object, or too deep), USC_E_IO. */
USC_NODISCARD usc_status usc_json_stream_enter(usc_json_stream *s, usc_error *err);

#endif
