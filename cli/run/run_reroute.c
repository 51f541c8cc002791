// SPDX-License-Identifier: Apache-2.0
// --fallback, --cast and --substitute as JSON; see run_reroute.h.
#include "run/run_reroute.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/dtype.h>
#include <ulpscope/x/pattern.h>

#include "cli.h"

#define VARIABLE "ULPSCOPE_REROUTE"

enum { ROOM = 1 << 14 };
static char rows[ROOM]; /* of the list, comma-separated */

static bool is_word(const char *text)
{
    for (const char *c = text; *c != '\0'; c++)
        if (!isalnum((unsigned char)*c) && strchr("._:", *c) == NULL) return false;
    return *text != '\0';
}

static bool check_ops(const char *what, const char *ops)
{
    usc_error err;
    if (*ops == '\0') return cli_fail("--%s: no PATTERN of operators", what) == 0;
    return usc_pattern_check(ops, &err) == USC_OK ||
           cli_fail("--%s: %s", what, err.text) == 0;
}

/* Whether torch has a floating dtype of that name. */
static bool is_floating(const char *name)
{
    static const char *const others[] = {"half", "float", "double"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0) return true;
    const usc_dtype dtype = usc_dtype_by_name(name);
    return dtype != USC_DTYPE_NONE && usc_dtype_info_of(dtype)->kind == USC_KIND_FLOAT;
}

static bool check_dtype(const char *name)
{
    const char *best = NULL;
    if (is_floating(name)) return true;
    for (int i = 0; i < USC_N_DTYPES; i++)
        if (is_floating(usc_dtype_info_of((usc_dtype)i)->name))
            (void)cli_nearer(name, usc_dtype_info_of((usc_dtype)i)->name, &best);
    return cli_fail("--cast: '%s' is no floating dtype of torch%s%s%s", name,
                    best != NULL ? "; did you mean " : ", e.g. float32",
                    best != NULL ? best : "", best != NULL ? "?" : "") == 0;
}

/* What follows the last `=`, which is cut off; NULL and a message where there is none. */
static const char *cut(const char *what, char *value)
{
    char *at = strrchr(value, '=');
    const bool casts = strcmp(what, "cast") == 0;
    if (at == NULL || !is_word(at + 1) || (!casts && strchr(at + 1, ':') == NULL)) {
        (void)cli_fail("--%s '%s': it is %s", what, value,
                       casts ? "PATTERN=DTYPE, e.g. 'mm,addmm=float32'"
                             : "OPERATOR=module:function");
        return NULL;
    }
    *at = '\0';
    return at + 1;
}

bool run_reroute_take(const char *what, const char *value)
{
    char ops[ROOM / 4], row[ROOM / 2];
    if (strlen(value) >= sizeof ops) return cli_fail("--%s is too long", what) == 0;
    memcpy(ops, value, strlen(value) + 1);
    const bool plain = strcmp(what, "fallback") == 0;
    const char *by = plain ? "" : cut(what, ops);
    if (by == NULL || !check_ops(what, ops)) return false;
    if (strcmp(what, "cast") == 0 && !check_dtype(by)) return false;
    const char *key = plain ? "" : strcmp(what, "cast") == 0 ? "dtype" : "with";
    (void)snprintf(row, sizeof row, "%s{\"do\": \"%s\", \"ops\": \"%s\"%s%s%s%s%s}",
                   rows[0] != '\0' ? ", " : "", what, ops, plain ? "" : ", \"", key,
                   plain ? "" : "\": \"", by, plain ? "" : "\"");
    if (strlen(rows) + strlen(row) >= sizeof rows)
        return cli_fail("--%s: too many of them", what) == 0;
    strcat(rows, row);
    return true;
}

bool run_reroute_any(void)
{
    return rows[0] != '\0' || getenv(VARIABLE) != NULL;
}

bool run_reroute_set(void)
{
    if (rows[0] == '\0') return true;
    const char *given = getenv(VARIABLE);
    size_t n = given != NULL ? strlen(given) : 0; /* of the list without its end */
    while (n > 0 && given[n - 1] != ']')
        n--;
    while (n > 0 && (given[n - 1] == ']' || isspace((unsigned char)given[n - 1])))
        n--;
    const bool empty = n == 0 || given[n - 1] == '[';
    char *text = NULL;
    if (asprintf(&text, "%.*s%s%s]", n > 0 ? (int)n : 1, n > 0 ? given : "[",
                 empty ? "" : ", ", rows) < 0)
        return cli_fail("out of memory") == 0;
    const bool ok = setenv(VARIABLE, text, 1) == 0;
    free(text);
    return ok || cli_fail("out of memory") == 0;
}
