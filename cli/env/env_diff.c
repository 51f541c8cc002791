// SPDX-License-Identifier: Apache-2.0
// What two files of facts differ in; see env_facts.h.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "env/env_facts.h"

static const char *const titles[] = {"changes numbers", "may change numbers",
                                     "seldom changes numbers"};

/* Which of the titles a fact belongs under. */
static int rank_of(const char *name)
{
    static const char *const surely[] = {"flag.", "file.", NULL};
    static const char *const decisive[] = {"TF32",      "HF32",    "DETERMINISTIC",
                                           "PRECISION", "REDUCED", "WORKSPACE_CONFIG",
                                           "HASHSEED",  "K_SHIFT", "INF_NAN",
                                           "FLUSH",     "DENORM",  "ALLOW_",
                                           "FAULTS",    "CBWR",    "_ALGO",
                                           "BENCHMARK", NULL};
    static const char *const maybe[] = {"version.",
                                        "hardware.",
                                        "variable.OMP_",
                                        "variable.MKL_",
                                        "variable.LD_",
                                        "variable.WORLD_SIZE",
                                        NULL};
    static const char *const seldom[] = {"version.kernel", "version.libc",
                                         "version.ulpscope", NULL};
    if (env_begins(name, surely) ||
        (strncmp(name, "variable.", 9) == 0 && env_holds(name, decisive)))
        return 0;
    return env_begins(name, maybe) && !env_begins(name, seldom) ? 1 : 2;
}

typedef struct pair {
    const char *name, *a, *b; /* NULL: not there */
} pair;

/* The facts that differ; `out` has room for all of both. */
static size_t pair_up(const facts *a, const facts *b, pair *out)
{
    size_t n = 0, i = 0, j = 0;
    while (i < a->n || j < b->n) {
        const int order = i == a->n   ? 1
                          : j == b->n ? -1
                                      : strcmp(a->fact[i].name, b->fact[j].name);
        const fact *p = order <= 0 ? &a->fact[i++] : NULL,
                   *q = order >= 0 ? &b->fact[j++] : NULL;
        if (p == NULL || q == NULL || strcmp(p->value, q->value) != 0)
            out[n++] = (pair){p != NULL ? p->name : q->name, p != NULL ? p->value : NULL,
                              q != NULL ? q->value : NULL};
    }
    return n;
}

static void put_pairs(const pair *pairs, size_t n, const char *a, const char *b)
{
    for (int rank = 0; rank < 3; rank++) {
        bool titled = false;
        for (size_t i = 0; i < n; i++) {
            if (rank_of(pairs[i].name) != rank) continue;
            if (!titled) (void)printf("%s\n", titles[rank]);
            titled = true;
            (void)printf("  %s\n    %-12s %s\n    %-12s %s\n", pairs[i].name, a,
                         pairs[i].a != NULL ? pairs[i].a : "(not there)", b,
                         pairs[i].b != NULL ? pairs[i].b : "(not there)");
        }
    }
    if (n == 0) (void)puts("the same in all that was recorded");
}

static void put_value(const char *text)
{
    if (text != NULL)
        cli_put_text(stdout, text);
    else
        (void)fputs("null", stdout);
}

static void put_pairs_json(const pair *pairs, size_t n)
{
    (void)fputs("{\"version\": 1, \"differ\": [", stdout);
    bool first = true;
    for (int rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < n; i++) {
            if (rank_of(pairs[i].name) != rank) continue;
            (void)fputs(first ? "{\"name\": " : ", {\"name\": ", stdout);
            first = false;
            cli_put_text(stdout, pairs[i].name);
            (void)printf(", \"kind\": \"%s\", \"a\": ", titles[rank]);
            put_value(pairs[i].a);
            (void)fputs(", \"b\": ", stdout);
            put_value(pairs[i].b);
            (void)putchar('}');
        }
    (void)puts("]}");
}

int env_diff(const char *a, const char *b, bool json)
{
    facts left = {0}, right = {0};
    int code = CLI_TROUBLE;
    const bool read = env_read(a, &left) && env_read(b, &right);
    if (read && cli_is_one_file(a, b)) {
        (void)cli_fail("%s is given twice: name what another machine wrote", a);
    } else if (read) {
        pair *pairs = calloc(left.n + right.n + 1, sizeof *pairs);
        const size_t n = pairs != NULL ? pair_up(&left, &right, pairs) : 0;
        if (json)
            put_pairs_json(pairs, n);
        else
            put_pairs(pairs, n, a, b);
        code = pairs == NULL ? cli_fail("out of memory")
                             : cli_close_output(n > 0 ? CLI_DIFFERS : CLI_SAME);
        free(pairs);
    }
    env_free(&left);
    env_free(&right);
    return code;
}
