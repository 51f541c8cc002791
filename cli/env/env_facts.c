// SPDX-License-Identifier: Apache-2.0
// The list of facts, as text and from it; see env_facts.h.
#include "env/env_facts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define FIRST_LINE "ulpscope-env 1\n"

void env_add(facts *f, const char *name, const char *value)
{
    fact *more = realloc(f->fact, (f->n + 1) * sizeof *more);
    if (more == NULL) {
        f->failed = true;
        return;
    }
    f->fact = more;
    more[f->n] = (fact){strdup(name), strdup(value)};
    for (char *c = more[f->n].value; c != NULL && *c != '\0'; c++)
        if (*c == '\n' || *c == '\t' || *c == '\r') *c = ' ';
    f->failed |= more[f->n].name == NULL || more[f->n].value == NULL;
    f->n++;
}

void env_free(facts *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->fact[i].name);
        free(f->fact[i].value);
    }
    free(f->fact);
    *f = (facts){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fact *)a)->name, ((const fact *)b)->name);
}

void env_sort(facts *f)
{
    if (f->n > 0) qsort(f->fact, f->n, sizeof *f->fact, by_name);
}

bool env_begins(const char *text, const char *const *starts)
{
    for (; *starts != NULL; starts++)
        if (strncmp(text, *starts, strlen(*starts)) == 0) return true;
    return false;
}

bool env_holds(const char *text, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        if (strcasestr(text, *parts) != NULL) return true;
    return false;
}

/* Of these only that they are set is told. */
bool env_is_secret(const char *name, const char *value)
{
    static const char *const parts[] = {"TOKEN", "KEY",        "SECRET", "PASSW", "PWD",
                                        "AUTH",  "CREDENTIAL", "COOKIE", NULL};
    const char *at = strstr(value, "://");
    return env_holds(name, parts) || (at != NULL && strchr(at, '@') != NULL);
}

/* What Python answers, line by line. False after a sentence: a file cannot be read. */
bool env_add_answers(facts *f, char *at)
{
    while (*at != '\0') {
        char *end = at + strcspn(at, "\n"), *tab = memchr(at, '\t', (size_t)(end - at));
        const bool last = *end == '\0';
        *end = '\0';
        if (tab != NULL) {
            *tab = '\0';
            if (strcmp(at, "error") == 0) return cli_fail("%s", tab + 1) == 0;
            const bool hush =
                strncmp(at, "variable.", 9) == 0 && env_is_secret(at + 9, tab + 1);
            env_add(f, at, hush ? "(set; not shown)" : tab + 1);
        }
        at = end + !last;
    }
    return true;
}

void env_put(const facts *f, bool json, FILE *to)
{
    (void)fputs(json ? "{" : FIRST_LINE, to);
    for (size_t i = 0; i < f->n; i++) {
        if (!json) {
            (void)fprintf(to, "%s\t%s\n", f->fact[i].name, f->fact[i].value);
            continue;
        }
        (void)fputs(i > 0 ? ", " : "", to);
        cli_put_text(to, f->fact[i].name);
        (void)fputs(": ", to);
        cli_put_text(to, f->fact[i].value);
    }
    if (json) (void)fputs("}\n", to);
}

bool env_read(const char *path, facts *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return cli_fail("%s: %s", path, strerror(errno)) == 0;
    const bool read = getdelim(&text, &size, '\0', file) >= 0;
    (void)fclose(file);
    bool ok = read && strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) == 0;
    if (!ok)
        (void)cli_fail(
            "%s is not what ulpscope env -o writes; write it there, and compare "
            "the files here",
            path);
    ok = ok && env_add_answers(out, text + strlen(FIRST_LINE));
    free(text);
    if (ok) env_sort(out);
    return ok;
}
