// SPDX-License-Identifier: Apache-2.0
#include "port/port_job.h"

#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes spliced lines out of a name, and zeros out of anything. */
static size_t unsplice(char *word, size_t n, bool name)
{
    size_t kept = 0;
    for (size_t at = 0; at < n; at++) {
        const char c = word[at];
        const bool spliced = c == '\\' || c == '\r' || c == '\n';
        if (c != '\0' && (!spliced || !name)) word[kept++] = c;
    }
    return kept;
}

void usc_port_terms_trim(usc_port_terms *terms)
{
    if (terms->size < (size_t)1 << 20) return;
    usc_keys_free(&terms->at);
    usc_arena_reset(&terms->arena);
    terms->size = 0;
}

static usc_port_term nothing = {"", 0, false, false};

usc_port_term *usc_port_term_at(usc_port_job *job, size_t i)
{
    const usc_port_token *t = usc_port_sig(job, i);
    if (t == NULL) return &nothing;
    const char *from = job->text + t->start;
    size_t n = t->end - t->start;
    const usc_hash128 key = usc_hash_bytes(from, n);
    const int64_t *known = usc_keys_find(&job->terms->at, key);
    if (known != NULL) return (usc_port_term *)(intptr_t)*known;
    usc_port_term *term = usc_arena_take(&job->terms->arena, sizeof *term + n + 1);
    if (term == NULL) {
        job->failed = true;
        return &nothing;
    }
    char *word = (char *)(term + 1);
    memcpy(word, from, n);
    if (memchr(word, '\\', n) != NULL || memchr(word, '\0', n) != NULL)
        n = unsplice(word, n, t->kind == USC_PORT_NAME);
    word[n] = '\0';
    *term = (usc_port_term){word, 0, false, false};
    job->terms->size += sizeof *term + n + 1;
    (void)usc_keys_put(&job->terms->at, key, (int64_t)(intptr_t)term);
    return term;
}

const char *usc_port_word(usc_port_job *job, size_t i)
{
    return usc_port_term_at(job, i)->text;
}

static bool grow(void **items, size_t n, size_t *size, size_t item, bool *failed)
{
    if (n < *size) return true;
    const size_t larger = *size > 0 ? *size * 2 : 32;
    void *grown = realloc(*items, larger * item);
    if (grown == NULL) {
        *failed = true;
        return false;
    }
    *items = grown;
    *size = larger;
    return true;
}

void usc_port_edit_put(usc_port_job *job, size_t start, size_t end, const char *text)
{
    void *items = job->edit;
    if (text == NULL ||
        !grow(&items, job->n_edits, &job->edits_size, sizeof *job->edit, &job->failed))
        return;
    job->edit = items;
    job->edit[job->n_edits] = (usc_port_edit){start, end, text, job->n_edits};
    job->n_edits++;
}

void usc_port_replace(usc_port_job *job, size_t i, const char *text)
{
    const usc_port_token *t = usc_port_sig(job, i);
    if (t == NULL) return;
    size_t splice = t->end; /* a line that is spliced in the middle of a name stays one */
    if (t->kind == USC_PORT_NAME) {
        const char *found = memchr(job->text + t->start, '\\', t->end - t->start);
        if (found != NULL)
            text = usc_port_format(job, "%s\\%s", text, found[1] == '\r' ? "\r\n" : "\n");
    }
    usc_port_edit_put(job, t->start, splice, text);
}

/* Lines are counted from the last place that was asked for, either way, or anew. */
static int64_t line_at(usc_port_job *job, size_t at)
{
    if (job->line == 0 || at < job->line_at / 2) {
        job->line = 1;
        job->line_at = 0;
    }
    for (const char *end; job->line_at < at; job->line_at = (size_t)(end - job->text)) {
        end = memchr(job->text + job->line_at, '\n', at - job->line_at);
        job->line += end != NULL;
        end = end != NULL ? end + 1 : job->text + at;
    }
    for (; job->line_at > at; job->line_at--)
        job->line -= job->text[job->line_at - 1] == '\n';
    return job->line;
}

static bool is_first(usc_port_job *job, usc_hash128 key)
{
    const int64_t next = (int64_t)job->told.n;
    const bool first = usc_keys_put(&job->told, key, next) == next;
    job->failed |= job->told.failed;
    return first;
}

bool usc_port_first(usc_port_job *job, const char *construct)
{
    return is_first(job, usc_key_of(construct));
}

void usc_port_leave_at(usc_port_job *job, size_t at, const char *construct,
                       const char *excerpt, const char *advice)
{
    const int64_t line = line_at(job, at);
    usc_hash128 key = usc_key_of(construct); /* of both: lines begin at 1 */
    key.low += (uint64_t)line * UINT64_C(0x9e3779b97f4a7c15);
    if (!is_first(job, key)) return;
    void *items = job->left;
    if (!grow(&items, job->n_left, &job->left_size, sizeof *job->left, &job->failed))
        return;
    job->left = items;
    job->left[job->n_left++] = (usc_port_left){line, construct, excerpt, advice};
}

void usc_port_leave(usc_port_job *job, size_t i, size_t last, const char *construct,
                    const char *advice)
{
    const usc_port_token *a = usc_port_sig(job, i), *b = usc_port_sig(job, last);
    if (a == NULL) return;
    if (b == NULL) b = a;
    size_t n = b->end - a->start;
    const char *end = memchr(job->text + a->start, '\n', n);
    if (end != NULL) n = (size_t)(end - job->text) - a->start;
    if (n > 60) n = 60;
    usc_port_leave_at(job, a->start, construct,
                      usc_port_copy(job, job->text + a->start, n), advice);
}

const char *usc_port_copy(usc_port_job *job, const char *bytes, size_t n)
{
    char *text = usc_arena_take(job->arena, n + 1);
    if (text == NULL) {
        job->failed = true;
        return "";
    }
    memcpy(text, bytes, n);
    text[n] = '\0';
    return text;
}

const char *usc_port_dot(usc_port_job *job, const char *first, const char *second)
{
    const size_t n = strlen(first), m = strlen(second);
    char *text = usc_arena_take(job->arena, n + m + 2);
    if (text == NULL) {
        job->failed = true;
        return "";
    }
    memcpy(text, first, n);
    text[n] = '.';
    memcpy(text + n + 1, second, m + 1);
    return text;
}

const char *usc_port_format(usc_port_job *job, const char *format, ...)
{
    char room[256]; /* nearly all are short, and are printed once */
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    const int n = vsnprintf(room, sizeof room, format, arguments);
    va_end(arguments);
    char *text = NULL;
    if (n >= 0 && n >= (int)sizeof room) text = usc_arena_take(job->arena, (size_t)n + 1);
    if (text != NULL) (void)vsnprintf(text, (size_t)n + 1, format, again);
    va_end(again);
    if (n >= 0 && n < (int)sizeof room) return usc_port_copy(job, room, (size_t)n);
    job->failed |= text == NULL;
    return text != NULL ? text : "";
}

const char *usc_port_to(const usc_port_job *job, usc_port_row_kind kind, const char *from,
                        size_t n, bool *known)
{
    const usc_port_name *row = usc_port_names_find(job->names, kind, from, n);
    *known = row != NULL;
    return row != NULL ? row->to : NULL;
}

const char *usc_port_advice(usc_port_job *job, usc_port_row_kind kind, const char *from,
                            const char *otherwise)
{
    const usc_port_name *row = usc_port_names_find(job->names, kind, from, strlen(from));
    return row != NULL && row->several != NULL
               ? usc_port_format(job, "CUDA has %s: choose", row->several)
               : otherwise;
}

const char *usc_port_ending(usc_port_target target, const char *ending)
{
    const bool back = target == USC_PORT_CUDA;
    if ((target != USC_PORT_MUSA && !back) || ending == NULL) return NULL;
    if (strcmp(ending, back ? ".mu" : ".cu") == 0) return back ? ".cu" : ".mu";
    if (strcmp(ending, back ? ".muh" : ".cuh") == 0) return back ? ".cuh" : ".muh";
    return NULL;
}

bool usc_port_glob(const char *glob, const char *path)
{
    const char *last = strrchr(path, '/');
    return fnmatch(glob, path, 0) == 0 ||
           (last != NULL && strchr(glob, '/') == NULL && fnmatch(glob, last + 1, 0) == 0);
}

void usc_port_job_close(usc_port_job *job)
{
    usc_port_tokens_free(&job->tokens);
    free(job->sig);
    free(job->edit);
    free(job->left);
    free(job->alias);
    usc_keys_free(&job->told);
    usc_keys_free(&job->own);
    usc_keys_free(&job->bound);
    *job = (usc_port_job){0};
}
