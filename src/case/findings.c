// SPDX-License-Identifier: Apache-2.0
// The findings of a call: the list, what went free, which of them decides, their notes.
// Neighbours: findings.h.
#include "case/findings.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define NOTED 0.03 /* more of an output excused than this is said */

static const usc_excuse_info excuses[] = {
#define EXCUSE_ROW(id, code, most, words) {code, most, words},
    USC_EXCUSE_LIST(EXCUSE_ROW)
#undef EXCUSE_ROW
};

const usc_excuse_info *usc_excuse_info_of(usc_excuse excuse)
{
    return excuse >= 0 && excuse < USC_N_EXCUSES ? &excuses[excuse] : NULL;
}

usc_excuse usc_excuse_by_code(const char *code)
{
    int i = 0;
    while (i < USC_N_EXCUSES && strcmp(excuses[i].code, code) != 0)
        i++;
    return (usc_excuse)i;
}

usc_count_text usc_count(int64_t n)
{
    char digits[24];
    usc_count_text out;
    size_t used = 0;
    const int size = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < size; i++) {
        if (i > 0 && (size - i) % 3 == 0 && digits[i - 1] != '-') out.text[used++] = ',';
        out.text[used++] = digits[i];
    }
    out.text[used] = '\0';
    return out;
}

/* ---- the list ---- */

usc_status usc_findings_open(const usc_alloc *alloc, usc_findings **out, usc_error *err)
{
    if (alloc == NULL) alloc = &usc_libc_alloc;
    *out = alloc->resize(alloc->ctx, NULL, 0, sizeof **out);
    if (*out == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "findings: no memory");
    **out = (usc_findings){.arena = {.alloc = *alloc}};
    return USC_OK;
}

void usc_findings_close(usc_findings *f)
{
    if (f == NULL) return;
    const usc_alloc alloc = f->arena.alloc;
    usc_arena_free(&f->arena);
    (void)alloc.resize(alloc.ctx, f, sizeof *f, 0);
}

usc_status usc_findings_status(const usc_findings *f, usc_error *err)
{
    if (!f->arena.failed) return USC_OK;
    return usc_error_set(err, USC_E_NOMEM, -1, "findings: no memory");
}

const char *usc_findings_text(usc_findings *f, const char *text)
{
    if (text == NULL || text[0] == '\0') return "";
    char *out = usc_arena_take(&f->arena, strlen(text) + 1);
    return out != NULL ? strcpy(out, text) : "";
}

static const float *copied_positions(usc_findings *f, const usc_finding *one)
{
    if (one->positions == NULL) return NULL;
    const size_t size = (size_t)one->ndim * USC_POSITION_SLICES * sizeof(float);
    return usc_arena_copy(&f->arena, one->positions, size);
}

usc_finding *usc_findings_put(usc_findings *f, size_t i, const usc_finding *one)
{
    if (f->n == f->capacity) {
        usc_finding **grown =
            usc_arena_grow(&f->arena, f->items, f->n, &f->capacity, sizeof *f->items);
        if (grown != NULL) f->items = grown;
    }
    usc_finding *kept = usc_arena_take(&f->arena, sizeof *kept);
    if (kept == NULL || f->arena.failed) return NULL;
    *kept = *one;
    kept->path = usc_findings_text(f, one->path);
    kept->reason = usc_findings_text(f, one->reason);
    for (int k = 0; k < one->n_notes; k++)
        kept->notes[k] = usc_findings_text(f, one->notes[k]);
    kept->positions = copied_positions(f, one);
    if (f->arena.failed) return NULL;
    f->items[i] = kept;
    f->n += i == f->n;
    return kept;
}

usc_status usc_findings_add(usc_findings *f, const usc_finding *one, usc_error *err)
{
    (void)usc_findings_put(f, f->n, one);
    return usc_findings_status(f, err);
}

usc_status usc_findings_say(usc_findings *f, usc_verdict verdict, const char *path,
                            const char *reason, usc_error *err)
{
    const usc_finding one = {.path = path,
                             .verdict = verdict,
                             .reason = reason,
                             .bits = verdict == USC_VERDICT_WRONG ? 0 : 24,
                             .yardstick_bits = 24};
    return usc_findings_add(f, &one, err);
}

int usc_findings_count(const usc_findings *f)
{
    return (int)f->n;
}

const usc_finding *usc_findings_at(const usc_findings *f, int i)
{
    return i >= 0 && (size_t)i < f->n ? f->items[i] : NULL;
}

/* ---- what went free ---- */

void usc_findings_noted(usc_findings *f, usc_finding *one, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (one->n_notes < USC_FINDING_NOTES)
        one->notes[one->n_notes++] = usc_findings_text(f, text);
}

void usc_findings_excused(usc_findings *f, usc_finding *one, usc_excuse excuse,
                          int64_t count)
{
    if (count == 0) return;
    int64_t *const n = &one->excused[excuse];
    *n += count;
    if ((double)*n > NOTED * (double)(one->n > 1 ? one->n : 1))
        usc_findings_noted(f, one, "%s of %s elements are excused: %s",
                           usc_count(*n).text, usc_count(one->n).text,
                           excuses[excuse].words);
}

void usc_findings_forget_bits(usc_findings *f, usc_finding *one)
{
    int64_t n = 0;
    for (int i = 0; i < USC_N_EXCUSES; i++)
        n += one->excused[i];
    if (one->verdict != USC_VERDICT_PASS || 2 * n <= one->n || isnan(one->bits)) return;
    char text[128];
    (void)snprintf(text, sizeof text, "bits are not known, %s of %s elements are excused",
                   usc_count(n < one->n ? n : one->n).text, usc_count(one->n).text);
    one->reason = usc_findings_text(f, text);
    one->bits = one->yardstick_bits = (double)NAN;
    one->bound = false;
}

void usc_findings_noted_odd(usc_findings *f, usc_finding *one, int64_t n_odd)
{
    if (n_odd == 0) return;
    if (n_odd < one->n)
        usc_findings_noted(f, one, "truth is NaN or Inf at %s of %s elements",
                           usc_count(n_odd).text, usc_count(one->n).text);
    else
        usc_findings_noted(f, one, "nothing finite to judge");
}

usc_status usc_findings_note(usc_findings *f, int i, const char *note, usc_error *err)
{
    usc_findings_noted(f, f->items[i], "%s", note);
    return usc_findings_status(f, err);
}

usc_status usc_findings_rename(usc_findings *f, int i, const char *path, usc_error *err)
{
    f->items[i]->path = usc_findings_text(f, path);
    return usc_findings_status(f, err);
}

usc_status usc_findings_excuse(usc_findings *f, int i, usc_excuse excuse, int64_t n,
                               usc_error *err)
{
    usc_findings_excused(f, f->items[i], excuse, n);
    usc_findings_forget_bits(f, f->items[i]);
    return usc_findings_status(f, err);
}

/* ---- which decides ---- */

/* An output in which float32 keeps no bits. */
static bool is_ill(const usc_finding *f)
{
    return f->numbers == USC_NUMBERS_ALL && f->verdict == USC_VERDICT_UNJUDGED &&
           f->judgement.n_ill > 0;
}

/* Whether such outputs stand aside: the mean that a layer_norm of normalised inputs
 * returns beside its result. */
static bool ill_stand_aside(const usc_findings *f, size_t first)
{
    int64_t n = 0, n_ill = 0;
    for (size_t i = first; i < f->n; i++) {
        n += f->items[i]->n;
        if (is_ill(f->items[i])) n_ill += f->items[i]->n;
    }
    return n_ill > 0 && 2 * n_ill <= n;
}

bool usc_finding_before(const usc_finding *a, const usc_finding *b)
{
    if (a->verdict != b->verdict) return a->verdict < b->verdict;
    if (isnan(a->bits) || isnan(b->bits)) return !isnan(a->bits) && isnan(b->bits);
    return a->bits < b->bits;
}

const usc_finding *usc_findings_worst_from(const usc_findings *f, size_t first)
{
    const bool aside = ill_stand_aside(f, first);
    const usc_finding *worst = NULL;
    for (size_t i = first; i < f->n; i++)
        if (!(aside && is_ill(f->items[i])) &&
            (worst == NULL || usc_finding_before(f->items[i], worst)))
            worst = f->items[i];
    return worst;
}

const usc_finding *usc_findings_worst(const usc_findings *f)
{
    return usc_findings_worst_from(f, 0);
}

/* The least note behind `after`; NULL where there is none. */
static const char *next_note(const usc_findings *f, const char *after)
{
    const char *least = NULL;
    for (size_t i = 0; i < f->n; i++)
        for (int k = 0; k < f->items[i]->n_notes; k++) {
            const char *note = f->items[i]->notes[k];
            if ((after == NULL || strcmp(note, after) > 0) &&
                (least == NULL || strcmp(note, least) < 0))
                least = note;
        }
    return least;
}

usc_status usc_findings_notes(usc_findings *f, const char *const **out, int *n,
                              usc_error *err)
{
    *out = NULL;
    *n = 0;
    if (f->n == 0) return USC_OK;
    const char **notes =
        usc_arena_take(&f->arena, f->n * USC_FINDING_NOTES * sizeof *notes);
    int used = 0;
    const char *note = NULL;
    while (notes != NULL && (note = next_note(f, note)) != NULL)
        notes[used++] = note;
    const usc_status st = usc_findings_status(f, err);
    if (st != USC_OK) return st;
    *out = notes;
    *n = used;
    return USC_OK;
}

/* ---- what nobody judged beside it ---- */

const char *usc_findings_left_out(usc_findings *f)
{
    const usc_finding *worst = usc_findings_worst(f);
    if (worst == NULL || usc_verdict_missing(worst->verdict)) return "";
    size_t used = 0, size = 1;
    for (size_t i = 0; i < f->n; i++)
        size += strlen(f->items[i]->path) + strlen(f->items[i]->reason) + 4;
    char *out = usc_arena_take(&f->arena, size);
    if (out == NULL) return "";
    out[0] = '\0';
    for (size_t i = 0; i < f->n; i++) {
        const usc_finding *one = f->items[i];
        if (!usc_verdict_missing(one->verdict)) continue;
        used +=
            (size_t)snprintf(out + used, size - used, "%s%s%s%s", used > 0 ? "; " : "",
                             one->path, one->path[0] != '\0' ? ": " : "", one->reason);
    }
    return out;
}
