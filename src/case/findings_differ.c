// SPDX-License-Identifier: Apache-2.0
// Outputs that must be as wanted, element by element. Neighbours: findings.h.
#include "base/words.h"
#include "case/findings.h"
#include "kernels/walk_load.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

usc_differing_text usc_differing(int64_t n)
{
    usc_differing_text out;
    (void)snprintf(out.text, sizeof out.text, "%s elements differ", usc_count(n).text);
    return out;
}

void usc_finding_differs(usc_finding *one, const usc_tensor *got, const usc_tensor *want,
                         const usc_tensor *marks)
{
    const usc_walk walks[3] = {usc_walk_over(got), usc_walk_over(want),
                               usc_walk_over(marks)};
    usc_walk_room room[3];
    double values[2][USC_JUDGE_BLOCK];
    int64_t n_differ = 0;
    one->n_examples = 0;
    for (int64_t i = 0; i < one->n; i += USC_JUDGE_BLOCK) {
        const size_t m =
            (size_t)(one->n - i < USC_JUDGE_BLOCK ? one->n - i : USC_JUDGE_BLOCK);
        const uint8_t *marked = usc_walk_raw(&walks[2], i, m, &room[2]);
        const double *device = NULL, *right = NULL;
        for (size_t k = 0; k < m; k++) {
            if (marked[k] == 0) continue;
            n_differ++;
            if (one->n_examples == USC_FINDING_EXAMPLES) continue;
            if (device == NULL) {
                device = usc_walk_load(&walks[0], i, m, &room[0], values[0]);
                right = usc_walk_load(&walks[1], i, m, &room[1], values[1]);
            }
            one->examples[one->n_examples++] = (usc_example){
                i + (int64_t)k, device[k], right[k], right[k], (double)INFINITY};
        }
    }
    one->judgement.n_mismatch = n_differ;
    if (one->numbers == USC_NUMBERS_NONE) one->numbers = USC_NUMBERS_COUNT;
}

static bool fits(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof a->sizes[0]) == 0;
}

usc_status usc_findings_differ(usc_findings *f, const char *path, const usc_tensor *got,
                               const usc_tensor *want, const usc_tensor *marks,
                               usc_error *err)
{
    if (!fits(got, want) || !fits(got, marks))
        return usc_error_set(err, USC_E_SHAPE, -1, "%s: shapes differ", path);
    if (got->dtype == USC_DTYPE_NONE || want->dtype == USC_DTYPE_NONE ||
        usc_dtype_info_of(marks->dtype)->size != 1)
        return usc_error_set(err, USC_E_DTYPE, -1, "%s: nobody compares that dtype",
                             path);
    usc_finding one = {.path = path, .yardstick_bits = 24, .ndim = got->ndim};
    memcpy(one.sizes, got->sizes, sizeof one.sizes);
    const usc_status st = usc_tensor_numel(got, &one.n, err);
    if (st != USC_OK) return st;
    usc_finding_differs(&one, got, want, marks);
    const int64_t n = one.judgement.n_mismatch;
    const usc_differing_text why = usc_differing(n);
    one.verdict = n > 0 ? USC_VERDICT_WRONG : USC_VERDICT_PASS;
    one.reason = n > 0 ? why.text : "";
    one.bits = n > 0 ? 0 : 24;
    if (n == 0) one.numbers = USC_NUMBERS_NONE;
    return usc_findings_add(f, &one, err);
}

usc_status usc_findings_same(usc_findings *f, const usc_finding *form, int float_size,
                             int64_t n_odd, usc_error *err)
{
    usc_finding one = {.path = form->path,
                       .verdict = USC_VERDICT_PASS,
                       .reason = "equal in every bit to the CPU's own",
                       .bits = float_size == 8 ? 53 : 24,
                       .bound = float_size > 0,
                       .n = form->n,
                       .ndim = form->ndim};
    memcpy(one.sizes, form->sizes, sizeof one.sizes);
    one.yardstick_bits = one.bits;
    if (float_size > 0 && one.n == 0) {
        one.reason = "no elements";
        one.bits = one.yardstick_bits = (double)NAN;
        one.bound = false;
    }
    usc_findings_noted_odd(f, &one, n_odd);
    return usc_findings_add(f, &one, err);
}

/* ---- the form of what was given ---- */

static void shape_text(const usc_tensor *t, char *out, size_t size)
{
    size_t used = (size_t)snprintf(out, size, "[");
    for (int i = 0; i < t->ndim && used < size; i++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", i > 0 ? ", " : "",
                                 (long long)t->sizes[i]);
    if (used < size) (void)snprintf(out + used, size - used, "]");
}

bool usc_misshapen(const usc_tensor *got, const usc_tensor *want, char *out, size_t size)
{
    char mine[256], its[256];
    if (got->ndim == want->ndim &&
        memcmp(got->sizes, want->sizes, (size_t)got->ndim * sizeof got->sizes[0]) == 0)
        return false;
    shape_text(got, mine, sizeof mine);
    shape_text(want, its, sizeof its);
    (void)snprintf(out, size, "shape %.100s where %.100s is right", mine, its);
    return true;
}

usc_status usc_findings_misformed(usc_findings *f, const char *path,
                                  const usc_tensor *got, const usc_tensor *want,
                                  bool dtype, bool *wrong, usc_error *err)
{
    char text[256];
    *wrong = usc_misshapen(got, want, text, sizeof text);
    if (!*wrong && dtype && got->dtype != want->dtype) {
        *wrong = true;
        (void)snprintf(text, sizeof text, USC_OTHER_DTYPE,
                       usc_dtype_info_of(got->dtype)->name,
                       usc_dtype_info_of(want->dtype)->name);
    }
    return *wrong ? usc_findings_say(f, USC_VERDICT_WRONG, path, text, err) : USC_OK;
}

usc_status usc_findings_miscounted(usc_findings *f, int64_t n_given, int64_t n_due,
                                   usc_error *err)
{
    char text[128];
    (void)snprintf(text, sizeof text, USC_MISCOUNTED, (long long)n_given,
                   (long long)n_due);
    return usc_findings_say(f, USC_VERDICT_WRONG, "", text, err);
}
