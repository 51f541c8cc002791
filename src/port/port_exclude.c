// SPDX-License-Identifier: Apache-2.0
// Lines that somebody marked: MUSIFY_EXCL_START up to MUSIFY_EXCL_STOP, and a line with
// MUSIFY_EXCL_LINE, are as they are. Nothing in them is edited, and nothing listed.
#include <string.h>

#include "port/port_job.h"

/* Bytes and lines that stay. */
typedef struct range {
    size_t start, end;
    int64_t first, last;
} range;

static size_t line_end(const usc_port_job *job, size_t at)
{
    const char *end = memchr(job->text + at, '\n', job->n - at);
    return end != NULL ? (size_t)(end - job->text) + 1 : job->n;
}

static size_t line_start(const usc_port_job *job, size_t at)
{
    while (at > 0 && job->text[at - 1] != '\n')
        at--;
    return at;
}

static const char *next_mark(const usc_port_job *job, size_t at)
{
    return at < job->n ? strstr(job->text + at, "MUSIFY_EXCL_") : NULL;
}

/* The range that begins at a mark; empty for another word. */
static range range_at(usc_port_job *job, size_t mark)
{
    const char *word = job->text + mark + strlen("MUSIFY_EXCL_");
    range r = {line_start(job, mark), line_end(job, mark), 0, 0};
    if (strncmp(word, "START", 5) == 0) {
        const char *stop = strstr(word, "MUSIFY_EXCL_STOP");
        r.end = stop != NULL ? line_end(job, (size_t)(stop - job->text)) : job->n;
        if (stop == NULL)
            usc_port_leave_at(job, mark, "marker", "MUSIFY_EXCL_START",
                              "has no MUSIFY_EXCL_STOP: all behind it stays");
    } else if (strncmp(word, "LINE", 4) != 0) {
        r.end = r.start;
    }
    return r;
}

static void keep(usc_port_job *job, const range *r)
{
    size_t n = 0;
    for (size_t i = 0; i < job->n_edits; i++)
        if (job->edit[i].end <= r->start || job->edit[i].start >= r->end)
            job->edit[n++] = job->edit[i];
    job->n_edits = n;
    n = 0;
    for (size_t i = 0; i < job->n_left; i++)
        if (job->left[i].line < r->first || job->left[i].line > r->last ||
            strcmp(job->left[i].construct, "marker") == 0)
            job->left[n++] = job->left[i];
    job->n_left = n;
}

void usc_port_exclude(usc_port_job *job)
{
    int64_t line = 1;
    size_t counted = 0;
    for (const char *mark = next_mark(job, 0); mark != NULL;) {
        range r = range_at(job, (size_t)(mark - job->text));
        for (; counted < r.start; counted++)
            line += job->text[counted] == '\n';
        r.first = r.last = line;
        for (; counted < r.end; counted++)
            line += job->text[counted] == '\n';
        r.last = line - (r.end > 0 && job->text[r.end - 1] == '\n');
        if (r.end > r.start) keep(job, &r);
        const size_t next = (size_t)(mark - job->text) + 12;
        mark = next_mark(job, r.end > next ? r.end : next);
    }
}
