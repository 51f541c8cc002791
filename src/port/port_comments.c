// SPDX-License-Identifier: Apache-2.0
// Names in comments, where they are asked for: whole ones of the table, files that are
// renamed, and "cuda" and "CUDA" as words. Parts of paths and of addresses stay, and so
// does a comment that speaks of a licence: its words are somebody's.
#include <ctype.h>
#include <string.h>

#include "port/port_own.h"

/* A run of bytes that may be a path; names and what joins them. */
typedef struct run {
    size_t start, end;
} run;

static bool in_run(const char *text, size_t at)
{
    return usc_port_in_name(text[at]) ||
           (text[at] != '\0' && strchr("./\\-+@~$%", text[at]) != NULL) ||
           text[at] == ':';
}

/* The end of a chain from `at` on: names joined by :: or by dots. */
static size_t chain_end(const char *text, size_t at, size_t end, const char *joint)
{
    const size_t n = strlen(joint);
    for (;;) {
        while (at < end && usc_port_in_name(text[at]))
            at++;
        if (at + n >= end || strncmp(text + at, joint, n) != 0 ||
            !usc_port_in_name(text[at + n]))
            return at;
        at += n;
    }
}

/* "cuda" and "CUDA" alone are the device's. */
static const char *word_of(usc_port_job *job, const char *word, size_t n)
{
    bool known = false;
    const char *device = job->names->device;
    const char *to = usc_port_to(job, USC_PORT_PY_TEXT, device, 4, &known);
    if (to == NULL || n != 4 || strncasecmp(word, device, 4) != 0) return NULL;
    char *text = (char *)(uintptr_t)usc_port_format(job, "%s", to);
    for (size_t i = 0; text[i] != '\0'; i++)
        if (isupper((unsigned char)word[i < 4 ? i : 3]))
            text[i] = (char)toupper((unsigned char)text[i]);
    return text;
}

/* What the longest beginning of a chain becomes; *n: its bytes. NULL: stays. */
static const char *row_of(usc_port_job *job, const char *chain, size_t *n, bool python)
{
    const usc_port_row_kind kind = python ? USC_PORT_PY_NAME : USC_PORT_CXX_NAME;
    const char joint = python ? '.' : ':';
    for (;;) {
        bool known = false;
        const char *to = usc_port_to(job, kind, chain, *n, &known);
        if (known && to != NULL && strpbrk(to, "(!") == NULL) return to;
        if (known) return NULL;
        while (*n > 0 && chain[*n - 1] != joint)
            --*n;
        while (*n > 0 && chain[*n - 1] == joint)
            --*n;
        if (*n == 0) return NULL;
    }
}

/* A path that names a file which gets another ending. */
static bool port_path(usc_port_job *job, run r)
{
    const char *path = usc_port_copy(job, job->text + r.start, (size_t)(r.end - r.start));
    const char *name = usc_port_new_name(job, path);
    if (name != NULL) usc_port_edit_put(job, r.start, r.end, name);
    return name != NULL;
}

static void port_run(usc_port_job *job, run r, bool python)
{
    const char *text = job->text;
    while (r.end > r.start && strchr(".:-", text[r.end - 1]) != NULL)
        r.end--; /* of the sentence */
    if (r.end - r.start > 512 || port_path(job, r)) return;
    for (size_t at = r.start; at < r.end; at++)
        if (strchr("/\\-@~$%", text[at]) != NULL) return;
    for (size_t at = r.start; at < r.end;) {
        const size_t end = chain_end(text, at, r.end, python ? "." : "::");
        size_t n = end - at;
        const bool whole = at == r.start || text[at - 1] == ':' || !python;
        const char *to = n > 0 && whole ? row_of(job, text + at, &n, python) : NULL;
        if (n == 0) n = end - at;
        if (to == NULL) to = word_of(job, text + at, n);
        if (to == NULL && job->own_names != NULL)
            to = usc_port_own_to(job, usc_port_copy(job, text + at, n), python);
        if (to != NULL) usc_port_edit_put(job, at, at + n, to);
        at = end > at ? end : at + 1;
    }
}

static bool is_licence(const usc_port_job *job, const usc_port_token *t)
{
    static const char *const words[] = {"copyright", "licen", "spdx"};
    for (size_t at = t->start; at < t->end; at++)
        for (int i = 0; i < 3; i++) {
            const size_t n = strlen(words[i]);
            if (at + n <= t->end && strncasecmp(job->text + at, words[i], n) == 0)
                return true;
        }
    return false;
}

void usc_port_comments(usc_port_job *job, bool python)
{
    for (size_t i = 0; i < job->tokens.n; i++) {
        const usc_port_token *t = &job->tokens.token[i];
        if (t->kind != USC_PORT_COMMENT || is_licence(job, t)) continue;
        size_t at = t->start + (python ? 1 : 2);
        const bool block = !python && job->text[t->start + 1] == '*';
        const size_t end = block && t->end >= at + 2 ? t->end - 2 : t->end;
        while (at < end) {
            run r = {at, at};
            while (r.end < end && in_run(job->text, r.end))
                r.end++;
            if (r.end > r.start) port_run(job, r, python);
            at = r.end + 1;
        }
    }
}
