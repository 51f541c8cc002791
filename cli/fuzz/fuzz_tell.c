// SPDX-License-Identifier: Apache-2.0
// What a fuzz run found: alike findings (operator, verdict, cause but for its numbers)
// are one, told by the worst case of them.
#include "fuzz/fuzz.h"

#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/result.h>
#include <ulpscope/verdict.h>

#include "show/show.h"

typedef struct finding {
    char *op, *verdict, *cause, *sentence;
    int64_t worst, n;
} finding;

typedef struct findings {
    finding *at;
    size_t n;
} findings;

/* Whether two causes differ in numbers alone. */
static bool alike(const char *a, const char *b)
{
    static const char digits[] = "0123456789.,";
    for (;;) {
        const size_t n = strspn(a, digits), m = strspn(b, digits);
        if ((n == 0) != (m == 0)) return false;
        a += n;
        b += m;
        if (*a != *b) return false;
        if (*a == '\0') return true;
        a++;
        b++;
    }
}

/* The name of the call that a search reached from a case, or of the case itself. */
static int64_t case_of(const usc_result_row *row)
{
    for (int i = 0; i < row->n_metrics; i++)
        if (strcmp(row->metrics[i].name, "case") == 0)
            return (int64_t)row->metrics[i].value;
    return row->call;
}

static usc_status add(void *ctx, const usc_result_row *row, usc_error *err)
{
    findings *f = ctx;
    if (!usc_verdict_flagged(usc_verdict_by_text(row->verdict))) return USC_OK;
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->at[i].op, row->op) == 0 &&
            strcmp(f->at[i].verdict, row->verdict) == 0 &&
            alike(f->at[i].cause, row->cause)) {
            f->at[i].n++;
            return USC_OK;
        }
    finding *more = realloc(f->at, (f->n + 1) * sizeof *more);
    if (more == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
    f->at = more;
    finding *last = &more[f->n++];
    *last = (finding){strdup(row->op),       strdup(row->verdict), strdup(row->cause),
                      strdup(row->sentence), case_of(row),         1};
    if (last->op != NULL && last->verdict != NULL && last->cause != NULL &&
        last->sentence != NULL)
        return USC_OK;
    return usc_error_set(err, USC_E_NOMEM, -1, "out of memory");
}

/* A script of one call shows nothing of a relation between two. */
static const char *again(const finding *f)
{
    return strncmp(f->cause, "the relation ", 13) == 0 ? "replay" : "minimize";
}

/* An option and its text, as a shell reads them; nothing without a text. */
static void put_option(FILE *to, const char *option, const char *text)
{
    if (text == NULL || text[0] == '\0') return;
    (void)fprintf(to, " %s ", option);
    cli_put_word(to, text);
}

/* The last part of a path, without slashes behind it. */
static void put_last_part(FILE *to, const char *option, const char *path)
{
    char part[PATH_MAX];
    size_t n = path != NULL ? strlen(path) : 0, from;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (from = n; from > 0 && path[from - 1] != '/'; from--) {
    }
    (void)snprintf(part, sizeof part, "%.*s", (int)(n - from), n > 0 ? path + from : "");
    put_option(to, option, part);
}

/* From what cases are drawn, wherever that lies: what their names mean hangs on it. */
static void put_kind(FILE *to, const usc_check_options *o, const fuzz_source *from)
{
    if (o->fuzz->programs) (void)fputs(" --programs", to);
    if (o->fuzz->stress) (void)fputs(" --stress", to);
    put_last_part(to, "--trace", from->trace);
    put_last_part(to, "--spec", from->spec);
}

/* What a case of a run needs beside its name, as a new text; NULL: out of memory. */
static char *how_of(const usc_check_options *o, const fuzz_source *from)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to == NULL) return NULL;
    put_option(to, "--device", o->device);
    put_option(to, "--via", o->via);
    if (o->fuzz->programs) (void)fputs(" --programs", to);
    if (o->fuzz->stress) (void)fputs(" --stress", to);
    if (o->fuzz->relations) (void)fputs(" --relations", to);
    put_option(to, "--faults", o->faults);
    put_option(to, "--trace", from->trace);
    put_option(to, "--spec", from->spec);
    for (int i = 0; i < o->n_imports; i++)
        put_option(to, "--import", o->imports[i]);
    const bool failed = ferror(to) != 0;
    if (fclose(to) == 0 && !failed) return text;
    free(text);
    return NULL;
}

/* The command that does a verb with a case; NULL: out of memory. */
static char *command_of(const char *verb, uint64_t seed, int64_t number, const char *how)
{
    const size_t room = strlen(how) + 96;
    char *text = malloc(room);
    if (text != NULL)
        (void)snprintf(text, room, "ulpscope fuzz %s %" PRIu64 ":%" PRId64 "%s", verb,
                       seed, number, how);
    return text;
}

static void put_json(const usc_check_options *o, const char *how, const finding *f)
{
    const struct {
        const char *key, *value;
    } texts[] = {{"op", f->op},
                 {"verdict", f->verdict},
                 {"cause", f->cause},
                 {"sentence", f->sentence}};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        (void)printf("%s\"%s\": ", i == 0 ? "{" : ", ", texts[i].key);
        cli_put_text(stdout, texts[i].value);
    }
    (void)printf(", \"case\": \"%" PRIu64 ":%" PRId64 "\", \"cases\": %" PRId64
                 ", \"repro\": ",
                 o->fuzz->seed, f->worst, f->n);
    char *text = command_of(again(f), o->fuzz->seed, f->worst, how);
    cli_put_text(stdout, text != NULL ? text : "");
    free(text);
    fputs("}\n", stdout);
}

static void put_text(const usc_check_options *o, const char *how, const findings *f)
{
    if (f->n == 0) return;
    (void)printf("\n%zu %s:\n", f->n, f->n == 1 ? "finding" : "different findings");
    for (size_t i = 0; i < f->n; i++) {
        (void)printf("  %" PRIu64 ":%-8" PRId64 " %3" PRId64 " %s  ", o->fuzz->seed,
                     f->at[i].worst, f->at[i].n, f->at[i].n == 1 ? "case " : "cases");
        show_plain(f->at[i].sentence);
        fputs("\n", stdout);
    }
    const char *const verb[][2] = {{"replay", "a case again"},
                                   {"minimize", "as a script that torch alone runs"}};
    for (size_t i = 0; i < 2; i++) {
        char *text = command_of(verb[i][0], o->fuzz->seed, f->at[0].worst, how);
        (void)printf("%s: ", verb[i][1]);
        show_plain(text != NULL ? text : "");
        fputs("\n", stdout);
        free(text);
    }
}

#define KIND "# cases of ulpscope fuzz"

bool fuzz_same_kind(const char *cases, const usc_check_options *o,
                    const fuzz_source *from)
{
    char *line = NULL, *mine = NULL;
    size_t room = 0, size = 0;
    FILE *file = fopen(cases, "r"), *to = open_memstream(&mine, &size);
    if (to != NULL) {
        (void)fputs(KIND, to);
        put_kind(to, o, from);
        if (fclose(to) != 0) size = 0;
    }
    bool same = true;
    if (file != NULL && mine != NULL && getline(&line, &room, file) >= 0 &&
        strncmp(line, KIND, strlen(KIND)) == 0) {
        line[strcspn(line, "\r\n")] = '\0';
        same = strcmp(line, mine) == 0;
        if (!same)
            (void)cli_fail("%s names cases of 'ulpscope fuzz%s', and this run draws as "
                           "'ulpscope fuzz%s': there they are other calls; judge them "
                           "with ulpscope fuzz replay and those options",
                           cases, line + strlen(KIND), mine + strlen(KIND));
    }
    if (file != NULL) (void)fclose(file); /* one that is not there: fuzz_read_cases */
    free(line);
    free(mine);
    return same;
}

/* One case a line: what `ulpscope fuzz replay FILE` takes. */
static bool write_cases(const usc_check_options *o, const fuzz_source *from,
                        const findings *f)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/cases.txt", o->out);
    FILE *file = fopen(path, "w");
    if (file == NULL) return cli_fail("%s cannot be written", path) == 0;
    (void)fputs(KIND, file);
    put_kind(file, o, from);
    (void)fputs("\n", file);
    for (size_t i = 0; i < f->n; i++)
        (void)fprintf(file, "%" PRIu64 ":%" PRId64 " %s %s: %s\n", o->fuzz->seed,
                      f->at[i].worst, f->at[i].verdict, f->at[i].op, f->at[i].cause);
    const bool failed = ferror(file) != 0;
    if (fclose(file) == 0 && !failed) return true;
    return cli_fail("%s cannot be written", path) == 0;
}

bool fuzz_tell(const usc_check_options *o, const fuzz_source *from, bool json)
{
    findings f = {0};
    usc_result *result = NULL;
    usc_error err;
    char *how = how_of(o, from);
    if (how == NULL) return cli_fail("out of memory") == 0;
    usc_status st = usc_result_open(o->out, &result, &err);
    if (st == USC_OK) st = usc_result_walk(result, add, &f, &err);
    usc_result_close(result);
    bool ok = st == USC_OK || cli_fail("%s", err.text) == 0;
    for (size_t i = 0; ok && json && i < f.n; i++)
        put_json(o, how, &f.at[i]);
    if (ok && !json) put_text(o, how, &f);
    if (ok) ok = write_cases(o, from, &f);
    for (size_t i = 0; i < f.n; i++) {
        free(f.at[i].op);
        free(f.at[i].verdict);
        free(f.at[i].cause);
        free(f.at[i].sentence);
    }
    free(f.at);
    free(how);
    return ok;
}
