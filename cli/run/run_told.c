// SPDX-License-Identifier: Apache-2.0
// What the processes of a command under `ulpscope run` found: a file for each process and
// mode, words with a zero behind each (python/ulpscope/run_modes.py writes them).
#include "run/run.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "cli.h"
#include "common/progress.h"

/* The words of a report, in turn; what follows are sentences. */
enum {
    RANK,
    WORLD,
    N_CALLS,
    N_FOUND,
    N_TOLD,
    TROUBLE,
    KEPT,
    UNJUDGED,
    N_LEFT,
    UNMATCHED,
    N_FIXED
};

typedef struct told {
    char *text; /* the file */
    long long rank, world, n_calls, n_found;
    long long n_left;       /* calls not judged, and not allowed */
    long long n_told;       /* of what was found, that the sentences stand for */
    const char *trouble;    /* what ended the mode; NULL: nothing */
    const char *unjudged;   /* what was not judged, a line; NULL: all was */
    const char *unmatched;  /* globs of --ops that no operator met, "'a', 'b'"; "" */
    const char *kept;       /* folder with more; NULL: none was written */
    const char *said, *end; /* sentences, each with a zero behind it */
} told;

typedef struct told_list {
    told *item;
    size_t n;
    bool failed; /* no memory */
} told_list;

static bool take(told *t, size_t size)
{
    const char *word[N_FIXED], *at = t->text;
    t->end = t->text + size;
    for (int i = 0; i < N_FIXED; i++) {
        if (at >= t->end) return false; /* not one of ours */
        word[i] = at;
        at += strlen(at) + 1;
    }
    t->rank = atoll(word[RANK]);
    t->world = atoll(word[WORLD]);
    t->n_calls = atoll(word[N_CALLS]);
    t->n_found = atoll(word[N_FOUND]);
    t->n_told = atoll(word[N_TOLD]);
    t->trouble = word[TROUBLE][0] != '\0' ? word[TROUBLE] : NULL;
    t->kept = word[KEPT][0] != '\0' ? word[KEPT] : NULL;
    t->unjudged = word[UNJUDGED][0] != '\0' ? word[UNJUDGED] : NULL;
    t->n_left = atoll(word[N_LEFT]);
    t->unmatched = word[UNMATCHED];
    t->said = at;
    return true;
}

/* A whole file with a zero behind it; NULL where it cannot be read. */
static char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t room = 0;
    *size = 0;
    while (file != NULL && !feof(file) && !ferror(file)) {
        if (*size + 1 >= room) {
            room = room > 0 ? 2 * room : 4096;
            char *more = realloc(text, room);
            if (more == NULL) break;
            text = more;
        }
        *size += fread(text + *size, 1, room - 1 - *size, file);
    }
    if (file != NULL) (void)fclose(file);
    if (text != NULL) text[*size] = '\0';
    return text;
}

static void add(told_list *list, const char *path)
{
    size_t size;
    told one = {.text = read_file(path, &size)};
    told *more = one.text != NULL && take(&one, size)
                     ? realloc(list->item, (list->n + 1) * sizeof *more)
                     : NULL;
    if (more == NULL) {
        free(one.text);
        return;
    }
    list->item = more;
    list->item[list->n++] = one;
}

static int by_rank(const void *a, const void *b)
{
    const told *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* The reports on one mode, by rank. */
static told_list read_reports(const char *folder, const char *mode)
{
    told_list list = {0};
    char start[64], path[PATH_MAX + NAME_MAX + 2];
    const int n = snprintf(start, sizeof start, "told-%s-", mode);
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, start, (size_t)n) != 0) continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        add(&list, path);
    }
    if (dir != NULL) (void)closedir(dir);
    if (list.n > 0) qsort(list.item, list.n, sizeof *list.item, by_rank);
    return list;
}

static void free_reports(told_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->item[i].text);
    free(list->item);
}

/* "rank 1: ", where there are several. */
static void put_rank(FILE *to, const told *t)
{
    if (t->world > 1) (void)fprintf(to, "rank %lld: ", t->rank);
}

static void put_found(FILE *to, const told *t, const run_mode *mode)
{
    char text[32];
    for (const char *at = t->said; at < t->end; at += strlen(at) + 1) {
        put_rank(to, t);
        (void)fprintf(to, "%s\n", at);
    }
    const long long more = t->n_found - t->n_told;
    if (more <= 0) return;
    put_rank(to, t);
    (void)fprintf(to, "... and %s more %s\n", cli_grouped(more, text),
                  more == 1 ? mode->one : mode->all);
}

/* Nothing that was looked at is no "nothing found". */
static void put_unwatched(FILE *to, const run_seen *s, const run_mode *mode)
{
    (void)fprintf(to, "ulpscope run: --%s watched nothing: it saw no %s of %s",
                  mode->name, mode->none, s->command[0]);
    if (s->ops != NULL) (void)fprintf(to, " of --ops '%s'", s->ops);
    if (s->steps != NULL) (void)fprintf(to, " in steps %s", s->steps);
    (void)fputs("; hence exit code 2\n", to);
}

/* The last lines: what was not judged. */
static bool put_left(FILE *to, const told_list *list)
{
    bool any = false;
    for (size_t i = 0; i < list->n; i++) {
        if (list->item[i].unjudged == NULL) continue;
        put_rank(to, &list->item[i]);
        (void)fprintf(to, "%s\n", list->item[i].unjudged);
        any = true;
    }
    return any;
}

/* "N calls were not judged"; how many. */
static long long put_open(FILE *to, const told_list *list)
{
    char text[32];
    long long n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->item[i].n_left;
    if (n > 0)
        (void)fprintf(to,
                      "ulpscope run: %s call%s not judged, hence exit code 2; to "
                      "accept %s: --allow unjudged, or unjudged:PATTERN\n",
                      cli_grouped(n, text), n == 1 ? " was" : "s were",
                      n == 1 ? "it" : "them");
    return n;
}

/* What no process that watched anything met of --ops; whether there was such. */
static bool put_unmatched(FILE *to, const told_list *list)
{
    char all[1024] = "";
    bool begun = false;
    for (size_t i = 0; i < list->n; i++) {
        if (list->item[i].n_calls == 0) continue;
        if (begun)
            cli_keep_common(all, list->item[i].unmatched);
        else
            (void)snprintf(all, sizeof all, "%s", list->item[i].unmatched);
        begun = true;
    }
    if (all[0] == '\0') return false;
    (void)fprintf(to, "ulpscope run: no call matched %s of --ops", all);
    return true;
}

/* One mode; the exit code as far as it goes. */
static int conclude_mode(const run_seen *s, const run_mode *mode, FILE *to)
{
    told_list list = read_reports(s->reports, mode->name);
    long long n_calls = 0, n_found = 0, n_ranks = 0;
    int code = CLI_SAME;
    char text[32];
    for (size_t i = 0; i < list.n; i++) {
        const told *t = &list.item[i];
        put_found(to, t, mode);
        if (t->kept != NULL) {
            put_rank(to, t);
            (void)fprintf(to, "%s %s: ulpscope %s %s\n", mode->kept, t->kept,
                          mode->reader, t->kept);
        }
        if (t->trouble != NULL) {
            (void)fputs("ulpscope run: ", to);
            put_rank(to, t);
            (void)fprintf(to, "%s\n", t->trouble);
            code = CLI_TROUBLE;
        }
        n_calls += t->n_calls;
        n_found += t->n_found;
        n_ranks += t->n_calls > 0;
    }
    if (n_calls == 0 && n_found == 0) {
        if (!put_left(to, &list) && code == CLI_SAME) put_unwatched(to, s, mode);
        free_reports(&list);
        return CLI_TROUBLE;
    }
    (void)fprintf(to, "ulpscope: %s %s in ",
                  n_found > 0 ? cli_grouped(n_found, text) : "no",
                  n_found > 1 ? mode->all : mode->one);
    (void)fprintf(to, "%s %s%s", cli_grouped(n_calls, text), mode->unit,
                  n_calls == 1 ? "" : "s");
    if (n_ranks > 1) (void)fprintf(to, " of %lld processes", n_ranks);
    (void)fputc('\n', to);
    (void)put_left(to, &list);
    if (code == CLI_SAME && n_found > 0) code = CLI_DIFFERS;
    if (code == CLI_SAME && put_open(to, &list) > 0) code = CLI_TROUBLE;
    if (put_unmatched(to, &list)) {
        (void)fputs(code == CLI_SAME ? "; hence exit code 2\n" : "\n", to);
        if (code == CLI_SAME) code = CLI_TROUBLE;
    }
    free_reports(&list);
    return code;
}

/* What was to be computed another way: one of --fallback, --cast, --substitute, whose
 * words are its name and a line for each operator. */
static int conclude_route(const told_list *list, FILE *to)
{
    long long n_calls = 0;
    for (size_t i = 0; i < list->n; i++) {
        const told *t = &list->item[i];
        n_calls += t->n_calls;
        for (const char *at = t->said + strlen(t->said) + 1; at < t->end;
             at += strlen(at) + 1) {
            (void)fputs("ulpscope: ", to);
            put_rank(to, t);
            (void)fprintf(to, "%s\n", at);
        }
    }
    if (n_calls > 0) return CLI_SAME;
    (void)fprintf(to,
                  "ulpscope run: %s took no call: nothing ran by it; hence exit code 2\n",
                  list->item[0].said);
    return CLI_TROUBLE;
}

/* All of them, in the order in which they were asked for; a process that ended without a
 * word says nothing of any. */
static int conclude_routes(const char *reports, FILE *to)
{
    int code = CLI_SAME;
    for (int i = 0;; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "reroute%d", i);
        told_list list = read_reports(reports, name);
        const bool any = list.n > 0;
        if (any && conclude_route(&list, to) != CLI_SAME) code = CLI_TROUBLE;
        free_reports(&list);
        if (!any) return code;
    }
}

/* The command's own end, where it is none of ours. */
static int own_code(const run_seen *s, FILE *to)
{
    if (s->status == 0) return CLI_SAME;
    if (!WIFSIGNALED(s->status)) return WEXITSTATUS(s->status);
    const int number = WTERMSIG(s->status);
    const char *name = usc_signal_name(number);
    (void)fprintf(to, "ulpscope run: %s was killed by SIG%s\n", s->command[0],
                  name != NULL ? name : "?");
    return 128 + number;
}

int run_conclude(const run_seen *s, FILE *to)
{
    const bool unseen = s->around.n_torch == 0 || s->around.not_started != NULL;
    int code = unseen ? CLI_TROUBLE : CLI_SAME;
    if (unseen) {
        (void)fputs("ulpscope run: ", to);
        (void)around_put_unseen(to, &s->around, s->command, "ULPSCOPE_RUN");
        (void)fputc('\n', to);
    }
    for (int i = 0; !unseen && i < s->n_modes; i++) {
        const int one = conclude_mode(s, s->mode[i], to);
        if (one > code) code = one;
    }
    if (!unseen && conclude_routes(s->reports, to) != CLI_SAME) code = CLI_TROUBLE;
    const int own = own_code(s, to);
    return own != CLI_SAME ? own : code;
}
