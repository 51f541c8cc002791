// SPDX-License-Identifier: Apache-2.0
// One file from its bytes to its bytes: cut, ask the rules, write the edits.
#include <stdlib.h>
#include <string.h>

#include "port/port_own.h"

static int by_place(const void *a, const void *b)
{
    const usc_port_edit *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* Sorts the edits, and drops those that lie in another one. */
static void settle_edits(usc_port_job *job)
{
    size_t n = 0, end = 0, sorted = 1;
    while (sorted < job->n_edits &&
           by_place(&job->edit[sorted - 1], &job->edit[sorted]) <= 0)
        sorted++;
    if (sorted < job->n_edits) /* rules go from the front to the back, but for some */
        qsort(job->edit, job->n_edits, sizeof *job->edit, by_place);
    for (size_t i = 0; i < job->n_edits; i++) {
        const usc_port_edit e = job->edit[i];
        const bool same = strlen(e.text) == e.end - e.start &&
                          memcmp(e.text, job->text + e.start, e.end - e.start) == 0;
        if (same || (n > 0 && e.start < end)) continue;
        job->edit[n++] = e;
        end = e.end;
    }
    job->n_edits = n;
}

static const char *write_edits(usc_port_job *job, size_t *size)
{
    *size = job->n;
    for (size_t i = 0; i < job->n_edits; i++)
        *size += strlen(job->edit[i].text) - (job->edit[i].end - job->edit[i].start);
    char *out = usc_arena_take(job->arena, *size + 1);
    if (out == NULL) {
        job->failed = true;
        return NULL;
    }
    size_t at = 0, to = 0;
    for (size_t i = 0; i < job->n_edits; i++) {
        const usc_port_edit *e = &job->edit[i];
        memcpy(out + to, job->text + at, e->start - at);
        to += e->start - at;
        memcpy(out + to, e->text, strlen(e->text));
        to += strlen(e->text);
        at = e->end;
    }
    memcpy(out + to, job->text + at, job->n - at);
    out[*size] = '\0';
    return out;
}

/* Whether the bytes are a text that can be cut; else it is left, with the reason. */
static bool is_text(usc_port_job *job)
{
    const unsigned char *b = (const unsigned char *)job->text;
    const char *as_it_is = "is left as it is: make it a text in UTF-8 or ASCII first";
    if (job->n >= 2 && ((b[0] == 0xFF && b[1] == 0xFE) || (b[0] == 0xFE && b[1] == 0xFF)))
        usc_port_leave_at(job, 0, "UTF-16", "", as_it_is);
    else if (memchr(job->text, '\0', job->n) != NULL)
        usc_port_leave_at(job, 0, "binary", "a zero byte", as_it_is);
    else if (job->n > ((size_t)64 << 20))
        usc_port_leave_at(job, 0, "too large", "",
                          "is left as it is: more than 64 MiB are no source");
    else
        return true;
    return false;
}

const char *usc_port_run(usc_port_job *job, usc_port_language language, size_t *size,
                         int64_t *changes)
{
    *changes = 0;
    *size = job->n;
    if (language == USC_PORT_OTHER || !is_text(job)) return NULL;
    if (language == USC_PORT_BUILD)
        usc_port_build(job);
    else if (usc_port_is_notebook(job->path))
        usc_port_notebook(job);
    else if (!usc_port_ask(job, language == USC_PORT_PYTHON))
        return NULL;
    usc_port_exclude(job);
    settle_edits(job);
    *changes = (int64_t)job->n_edits;
    if (job->failed || job->n_edits == 0) return NULL;
    return write_edits(job, size);
}
