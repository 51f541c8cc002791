// SPDX-License-Identifier: Apache-2.0
// Where cases come from: the examples that they are drawn from, their names in files.
#include "fuzz/fuzz.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/cli_python.h"
#include "common/stop.h"

#define MARK "examples lie in "

enum { MOST_OF_A_SITE = 16384, TIMEOUT_MS = 900000 };

bool fuzz_examples(bool programs, const char *spec, const char *ops,
                   const char *const *imports, char *path, size_t size)
{
    cli_python python;
    usc_error err;
    char output[PATH_MAX + MOST_OF_A_SITE];
    char flag[] = "-m", starter[] = "ulpscope.program.started",
         kept[] = "ulpscope.fuzzer.examples", specs[] = "ulpscope.fuzzer.spec",
         opdb[] = "opdb", words[] = "words", file[PATH_MAX];
    char *const module = programs || spec == NULL ? kept : specs;
    cli_stop_begin();
    if (!cli_python_find(&python, &err)) return cli_fail("%s", err.text) == 0;
    char names[CLI_MAX_IMPORTS][PATH_MAX];
    char *argv[CLI_MAX_IMPORTS + 6] = {python.program, flag, starter, module};
    int last = 3;
    if (module == kept) argv[++last] = programs ? words : opdb;
    const char *about = module == specs ? spec : programs ? NULL : ops;
    (void)snprintf(file, sizeof file, "%s", about != NULL ? about : "");
    if (about != NULL) argv[++last] = file;
    for (int i = 0; module == specs && i < CLI_MAX_IMPORTS && imports[i] != NULL; i++) {
        (void)snprintf(names[i], sizeof names[i], "%s", imports[i]);
        argv[++last] = names[i];
    }
    const bool minutes = module == kept && !programs; /* of which it tells */
    const int code =
        cli_run(argv, minutes ? INT_MAX : TIMEOUT_MS, true, output, sizeof output);
    const char *at = strstr(output, MARK);
    if (cli_stop_asked() != 0) return false; /* the child has said it */
    cli_stop_end();
    if (at == NULL)
        return cli_fail(
                   "no examples to draw from (%s ended with %d): give a captured trace "
                   "with --trace",
                   python.program, code) == 0;
    at += sizeof MARK - 1;
    const int n = (int)strcspn(at, "\n");
    if (code != 0) return cli_fail("%.*s", n, at) == 0;
    if ((size_t)snprintf(path, size, "%.*s", n, at) < size) return true;
    return cli_fail("the cache folder's name is too long: set ULPSCOPE_CACHE") == 0;
}

/* ---- names of cases ---- */

static bool read_name(const char *text, uint64_t *seed, int64_t *number)
{
    char *end;
    if (text[0] < '0' || text[0] > '9') return false;
    errno = 0;
    *seed = strtoull(text, &end, 10);
    if (errno != 0 || *end != ':' || end[1] < '0' || end[1] > '9') return false;
    *number = strtoll(end + 1, &end, 10);
    return errno == 0 &&
           (*end == '\0' || *end == ' ' || *end == '\t' || *end == '\n' || *end == '\r');
}

static int by_number(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static bool add_case(fuzz_cases **cases, size_t *n, uint64_t seed, int64_t number)
{
    size_t at = 0;
    while (at < *n && (*cases)[at].seed != seed)
        at++;
    if (at == *n) {
        fuzz_cases *more = realloc(*cases, (*n + 1) * sizeof *more);
        if (more == NULL) return false;
        more[(*n)++] = (fuzz_cases){.seed = seed};
        *cases = more;
    }
    fuzz_cases *c = &(*cases)[at];
    for (int64_t i = 0; i < c->n; i++)
        if (c->number[i] == number) return true;
    int64_t *more = realloc(c->number, (size_t)(c->n + 1) * sizeof *more);
    if (more == NULL) return false;
    more[c->n++] = number;
    c->number = more;
    return true;
}

static bool read_file(const char *path, fuzz_cases **out, size_t *n)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int64_t i_line = 0, number;
    uint64_t seed;
    bool ok = true;
    if (file == NULL)
        return cli_fail(
                   "'%s' is no case and no file of cases (%s): write SEED:CASE, e.g. "
                   "7:123, or name OUT/cases.txt",
                   path, strerror(errno)) == 0;
    while (ok && getline(&line, &room, file) >= 0) {
        const char *text = line + strspn(line, " \t\r\n");
        i_line++;
        if (*text == '\0' || *text == '#') continue;
        if (!read_name(text, &seed, &number))
            ok = cli_fail("%s, line %" PRId64
                          ": '%.*s' is no case; write SEED:CASE first, "
                          "e.g. 7:123",
                          path, i_line, (int)strcspn(text, " \t\r\n"), text) == 0;
        else if (!add_case(out, n, seed, number))
            ok = cli_fail("out of memory") == 0;
    }
    free(line);
    (void)fclose(file);
    if (ok && *n == 0) ok = cli_fail("%s names no case", path) == 0;
    return ok;
}

bool fuzz_read_cases(const char *text, fuzz_cases **out, size_t *n)
{
    uint64_t seed;
    int64_t number;
    *out = NULL;
    *n = 0;
    bool ok = read_name(text, &seed, &number) ? add_case(out, n, seed, number)
                                              : read_file(text, out, n);
    for (size_t i = 0; i < *n; i++)
        qsort((*out)[i].number, (size_t)(*out)[i].n, sizeof *(*out)[i].number, by_number);
    return ok;
}

void fuzz_free_cases(fuzz_cases *cases, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(cases[i].number);
    free(cases);
}
