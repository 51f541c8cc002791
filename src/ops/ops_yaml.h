// SPDX-License-Identifier: Apache-2.0
// YAML that somebody wrote, by libyaml, which ops_yaml.c alone sees: a tree of texts, lists
// and maps, each with its place. No anchors, no tags, one document, 8 MiB at most.
#ifndef USC_OPS_YAML_H
#define USC_OPS_YAML_H

#include <ulpscope/status.h>

#include "base/arena.h"

typedef enum usc_yaml_kind { USC_YAML_TEXT, USC_YAML_LIST, USC_YAML_MAP } usc_yaml_kind;

typedef struct usc_yaml usc_yaml;
struct usc_yaml {
    usc_yaml_kind kind;
    const char *text; /* of a text; "" else */
    int64_t line, column;
    usc_yaml **item; /* of a map: key, value, key, value */
    size_t n, size;
};

/**
 * Reads a file; `*out` is NULL where it holds nothing. A text that is wrong says
 * "PATH:LINE:COLUMN: ...".
 *
 * Errors:  USC_E_NOT_FOUND, USC_E_IO, USC_E_RANGE (too large), USC_E_CORRUPT, USC_E_NOMEM.
 */
USC_NODISCARD usc_status usc_yaml_read(const char *path, usc_arena *arena, usc_yaml **out,
                                       usc_error *err);

/** The value of a key; NULL where `map` is none or has none. */
const usc_yaml *usc_yaml_get(const usc_yaml *map, const char *key);

#endif
