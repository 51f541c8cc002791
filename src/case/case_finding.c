// SPDX-License-Identifier: Apache-2.0
// What a case found: verdicts, notes, counts of what went free. Neighbours: case_state.h.
#include "case/case_state.h"
#include "kernels/kernels.h"

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

const char *usc_case_text(usc_case *c, const char *text)
{
    if (text[0] == '\0') return "";
    char *out = usc_arena_take(&c->kept, strlen(text) + 1);
    return out != NULL ? strcpy(out, text) : "";
}

static void set_form(usc_case *c, usc_finding *f)
{
    f->path = c->o.path;
    f->wide = c->device.dtype == USC_F64;
    f->n = c->n;
    f->ndim = c->device.ndim;
    memcpy(f->sizes, c->device.sizes, sizeof f->sizes);
}

void usc_case_conclude(usc_case *c, usc_verdict verdict, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    c->f = (usc_finding){.verdict = verdict,
                         .reason = usc_case_text(c, text),
                         .bits = verdict == USC_VERDICT_WRONG ? 0 : 24,
                         .yardstick_bits = 24};
    set_form(c, &c->f);
}

void usc_case_note(usc_case *c, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (c->f.n_notes < USC_FINDING_NOTES)
        c->f.notes[c->f.n_notes++] = usc_case_text(c, text);
}

void usc_case_excuse(usc_case *c, usc_excuse excuse, int64_t count)
{
    if (count == 0) return;
    char note[128];
    c->f.excused[excuse] += count;
    if (usc_excuse_note(excuse, c->f.excused[excuse], c->f.n, note, sizeof note))
        usc_case_note(c, "%s", note);
}

bool usc_excuse_note(usc_excuse excuse, int64_t count, int64_t n, char *text, size_t size)
{
    const usc_excuse_info *const info = usc_excuse_info_of(excuse);
    if (size > 0) text[0] = '\0';
    if (info == NULL || (double)count <= NOTED * (double)(n > 1 ? n : 1)) return false;
    (void)snprintf(text, size, "%s of %s elements are excused: %s", usc_count(count).text,
                   usc_count(n).text, info->words);
    return true;
}

static double element(const usc_tensor *t, const void *data, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_kernels_widen(t->dtype, (const unsigned char *)data + (size_t)i * size, &v, 1);
    return v;
}

void usc_case_differ(usc_case *c, const usc_tensor *got, const usc_tensor *want)
{
    const void *device = usc_case_plain(c, got), *right = usc_case_plain(c, want);
    int64_t n_differ = 0;
    usc_example examples[USC_FINDING_EXAMPLES];
    if (device == NULL || right == NULL) return;
    for (int64_t i = 0; i < c->n; i++) {
        if (c->open[i] == 0) continue;
        if (n_differ++ >= USC_FINDING_EXAMPLES) continue;
        const double true_value = element(want, right, i);
        examples[n_differ - 1] = (usc_example){i, element(got, device, i), true_value,
                                               true_value, (double)INFINITY};
    }
    const usc_judgement j = c->f.judgement;
    const usc_finding_numbers numbers = c->f.numbers;
    usc_case_conclude(c, USC_VERDICT_WRONG, "%s elements differ",
                      usc_count(n_differ).text);
    c->f.numbers = numbers == USC_NUMBERS_ALL ? numbers : USC_NUMBERS_COUNT;
    c->f.judgement = j;
    c->f.judgement.n_mismatch = n_differ;
    c->f.n_examples =
        (int)(n_differ < USC_FINDING_EXAMPLES ? n_differ : USC_FINDING_EXAMPLES);
    memcpy(c->f.examples, examples, sizeof examples);
}

static const char *why(usc_excuse excuse)
{
    if (excuse == USC_EXCUSE_OUT_OF_RANGE)
        return "a float that the integer type does not hold is converted";
    if (excuse == USC_EXCUSE_WRITTEN_TWICE)
        return "several updates write one element, in no promised order";
    return "the function has a corner there, and any subgradient is one";
}

void usc_case_undefined(usc_case *c, int64_t n_differ)
{
    usc_case_conclude(c, USC_VERDICT_UNDEFINED, "%s", why(c->excuse));
    c->f.numbers = USC_NUMBERS_COUNT;
    c->f.judgement.n_mismatch = n_differ;
    usc_case_excuse(c, c->excuse, c->n_marks);
}

/* ---- the list ---- */

static usc_finding *add(usc_case *c, usc_error *err)
{
    if (c->n_found == c->capacity) {
        usc_finding **grown = usc_arena_grow(&c->kept, c->found, c->n_found, &c->capacity,
                                             sizeof(usc_finding *));
        if (grown != NULL) c->found = grown;
    }
    usc_finding *f = usc_arena_take(&c->kept, sizeof *f);
    if (f == NULL || c->kept.failed)
        (void)usc_error_set(err, USC_E_NOMEM, -1, "findings: no memory");
    else
        c->found[c->n_found++] = f;
    return c->kept.failed ? NULL : f;
}

usc_status usc_case_keep(usc_case *c, usc_error *err)
{
    usc_finding *f = add(c, err);
    if (f == NULL) return USC_E_NOMEM;
    *f = c->f;
    return USC_OK;
}

usc_status usc_case_say(usc_case *c, usc_verdict verdict, const char *path,
                        const char *reason, usc_error *err)
{
    const char *kept_path = usc_case_text(c, path);
    const char *text = usc_case_text(c, reason);
    usc_finding *f = add(c, err);
    if (f == NULL) return USC_E_NOMEM;
    *f = (usc_finding){.path = kept_path,
                       .verdict = verdict,
                       .reason = text,
                       .bits = verdict == USC_VERDICT_WRONG ? 0 : 24,
                       .yardstick_bits = 24};
    return USC_OK;
}

int usc_case_count(const usc_case *c)
{
    return (int)c->n_found;
}

const usc_finding *usc_case_finding(const usc_case *c, int i)
{
    return i >= 0 && (size_t)i < c->n_found ? c->found[i] : NULL;
}
