// SPDX-License-Identifier: Apache-2.0
// The edits of a file as a unified diff. They are known, so nothing is searched: lines
// that an edit touches are out, what they become is in, three lines around them.
#include <stdio.h>
#include <string.h>

#include "base/line.h"
#include "port/port_job.h"

enum { AROUND = 3 };

typedef struct sheet {
    usc_port_job *job;
    usc_line *out;
    size_t *starts; /* of each line, and the end of the last */
    size_t n;
} sheet;

static size_t line_of(const sheet *s, size_t at)
{
    size_t low = 0, high = s->n;
    while (low + 1 < high) {
        const size_t middle = (low + high) / 2;
        if (s->starts[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void put_lines(usc_line *out, char mark, const char *text, size_t n)
{
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        const size_t end = newline != NULL ? (size_t)(newline - text) + 1 : n;
        usc_line_put(out, &mark, 1);
        usc_line_put(out, text + at, end - at);
        if (newline == NULL) usc_line_text(out, "\n\\ No newline at end of file\n");
        at = end;
    }
}

static int64_t count_lines(const char *text, size_t n)
{
    int64_t lines = n > 0 && text[n - 1] != '\n';
    for (size_t i = 0; i < n; i++)
        lines += text[i] == '\n';
    return lines;
}

/* Lines [first, last) with edits [*e, ...) in them, as they become. */
static void new_text(const sheet *s, size_t first, size_t last, size_t *e, usc_line *to)
{
    const usc_port_job *job = s->job;
    size_t at = s->starts[first];
    usc_line_clear(to);
    if (first == last) usc_line_text(to, job->edit[(*e)++].text);
    while (*e < job->n_edits && job->edit[*e].start < s->starts[last]) {
        const usc_port_edit *edit = &job->edit[*e];
        usc_line_put(to, job->text + at, edit->start - at);
        usc_line_text(to, edit->text);
        at = edit->end;
        ++*e;
    }
    usc_line_put(to, job->text + at, s->starts[last] - at);
}

static size_t lower(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The lines that the edit `e` touches, with those that follow it there: [*first, *last). */
static void touched(const sheet *s, size_t e, size_t *first, size_t *last)
{
    const usc_port_job *job = s->job;
    const usc_port_edit *edit = &job->edit[e];
    const size_t n = strlen(edit->text);
    *first = line_of(s, edit->start);
    *last = *first;
    if (edit->start == edit->end && edit->start == s->starts[*first] && n > 0 &&
        edit->text[n - 1] == '\n')
        return; /* whole lines before this one */
    *last = line_of(s, edit->end > edit->start ? edit->end - 1 : edit->end) + 1;
    while (++e < job->n_edits && line_of(s, job->edit[e].start) <= *last) {
        edit = &job->edit[e];
        const size_t end =
            line_of(s, edit->end > edit->start ? edit->end - 1 : edit->end) + 1;
        if (end > *last) *last = end;
    }
}

/* One hunk from edit *e on; by how many lines what follows it has moved: *shift. */
static void put_hunk(const sheet *s, size_t *e, int64_t *shift)
{
    const usc_port_job *job = s->job;
    usc_line body = {0}, text = {0};
    size_t first, last;
    touched(s, *e, &first, &last);
    const size_t begin = first > AROUND ? first - AROUND : 0;
    size_t at = begin;
    int64_t added = 0;
    for (;;) {
        put_lines(&body, ' ', job->text + s->starts[at],
                  s->starts[first] - s->starts[at]);
        new_text(s, first, last, e, &text);
        put_lines(&body, '-', job->text + s->starts[first],
                  s->starts[last] - s->starts[first]);
        put_lines(&body, '+', text.text, text.n);
        added += count_lines(text.text, text.n) - (int64_t)(last - first);
        at = last;
        if (*e >= job->n_edits) break;
        touched(s, *e, &first, &last);
        if (first > at + (size_t)2 * AROUND) break;
    }
    const size_t end = lower(at + AROUND, s->n);
    put_lines(&body, ' ', job->text + s->starts[at], s->starts[end] - s->starts[at]);
    const int64_t n = (int64_t)(end - begin);
    usc_line_add(s->out, "@@ -%lld,%lld +%lld,%lld @@\n", (long long)begin + 1,
                 (long long)n, (long long)((int64_t)begin + 1 + *shift),
                 (long long)(n + added));
    usc_line_put(s->out, body.text, body.n);
    *shift += added;
    s->out->failed |= body.failed || text.failed;
    usc_line_free(&body);
    usc_line_free(&text);
}

const char *usc_port_diff(usc_port_job *job, const char *to)
{
    usc_line out = {0};
    if (job->n_edits == 0 || job->failed) return "";
    const size_t n = (size_t)count_lines(job->text, job->n);
    size_t *starts = usc_arena_take(job->arena, (n + 2) * sizeof *starts);
    if (starts == NULL) {
        job->failed = true;
        return "";
    }
    sheet s = {job, &out, starts, 0};
    starts[s.n++] = 0;
    for (size_t i = 0; i < job->n; i++)
        if (job->text[i] == '\n' && i + 1 < job->n) starts[s.n++] = i + 1;
    starts[s.n] = job->n;
    int64_t shift = 0;
    usc_line_add(&out, "--- a/%s\n+++ b/%s\n", job->path, to);
    for (size_t e = 0; e < job->n_edits;)
        put_hunk(&s, &e, &shift);
    const char *kept = usc_arena_text(job->arena, out.text);
    if (out.failed || kept == NULL) job->failed = true;
    usc_line_free(&out);
    return kept != NULL ? kept : "";
}
