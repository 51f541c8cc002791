// SPDX-License-Identifier: Apache-2.0
// Whether a narrower format explains a float output that would be called wrong: noise
// that lies on few elements, or that cancels to much more than it was, is no other
// formula. The same call in bfloat16, float16 and TF32: only one that gives the very
// errors counts (usc_judge_same_errors), and what it leaves open must not be wrong by
// itself. Neighbours: case_state.h.
#include "case/case_kept.h"
#include "case/case_state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum how {
    KERNEL,    /* the operator's own, in that dtype */
    RESULT,    /* R rounded: nobody is asked */
    INPUTS,    /* R of rounded inputs */
    BOTH,      /* the same, rounded: nobody is asked */
    ARITHMETIC /* every step's result rounded */
} how;

#define OF_FORMAT(name)                                                                  \
    {RESULT, name}, {INPUTS, name}, {BOTH, name},                                        \
    {                                                                                    \
        ARITHMETIC, name                                                                 \
    }

/* In the order in which they are tried. */
static const struct row {
    how how;
    const char *format; /* "": that of the call */
} rows[] = {{KERNEL, ""},        OF_FORMAT("TF32"),     OF_FORMAT("float16"),
            {KERNEL, "float16"}, OF_FORMAT("bfloat16"), {KERNEL, "bfloat16"}};

enum { N_ROWS = sizeof rows / sizeof rows[0], TF32_BITS = 11, LEAST_EXPONENT = -126 };

static const char *const hows[] = {
    [KERNEL] = "kernel", [INPUTS] = "inputs", [ARITHMETIC] = "arithmetic"};

const char *usc_narrow_how(int k, const char **format)
{
    if (k < 0 || k >= N_ROWS) return NULL;
    *format = rows[k].format;
    const char *name = hows[rows[k].how];
    return name != NULL ? name : "";
}

int usc_narrow_place(int k)
{
    int place = 0;
    for (int i = 0; i < k && i < N_ROWS; i++)
        place += hows[rows[i].how] != NULL;
    return k >= 0 && k < N_ROWS && hows[rows[k].how] != NULL ? place : -1;
}

/* ---- roundings ---- */

static double in_tf32(double v)
{
    int exponent;
    if (v == 0 || !isfinite(v)) return v;
    (void)frexp(v, &exponent);
    if (--exponent < LEAST_EXPONENT) exponent = LEAST_EXPONENT;
    const int last = exponent - (TF32_BITS - 1);
    const double y = ldexp(nearbyint(ldexp(v, -last)), last);
    return fabs(y) >= 0x1p128 ? copysign((double)INFINITY, v) : y;
}

/* A buffer for all of them. */
static const double *rounded(usc_case *c, const double *from)
{
    const char *format = rows[c->narrow.row].format;
    double *to = c->narrow.rounded;
    if (to == NULL) to = c->narrow.rounded = usc_case_room(c, c->n, sizeof *to);
    if (to == NULL) return NULL;
    const bool tf32 = strcmp(format, "TF32") == 0;
    const usc_dtype dtype = strcmp(format, "float16") == 0 ? USC_F16 : USC_BF16;
    for (int64_t i = 0; i < c->n; i++) {
        unsigned char place[8];
        if (tf32) {
            to[i] = in_tf32(from[i]);
            continue;
        }
        usc_dtype_narrow(dtype, &from[i], place, 1);
        usc_dtype_widen(dtype, place, &to[i], 1);
    }
    return to;
}

/* ---- one run after the other ---- */

static usc_case_stage take_run, next_run;

static const char *words(const struct row *row, char *out, size_t size)
{
    static const char *const of[] = {[KERNEL] = "torch's own kernel in ",
                                     [RESULT] = "a result rounded to ",
                                     [INPUTS] = "inputs rounded to ",
                                     [BOTH] = "inputs and a result rounded to ",
                                     [ARITHMETIC] = "arithmetic in "};
    const bool own = row->format[0] == '\0';
    (void)snprintf(out, size, "%s%s", of[row->how], own ? "this dtype" : row->format);
    return out;
}

/* What an emulation explains is put right, and the rest judged as if nothing were known.
 */
static usc_status weigh(usc_case *c, const double *emulated, usc_error *err)
{
    usc_tensor run;
    bool same = false;
    if (c->narrow.same == NULL) c->narrow.same = usc_case_room(c, c->n, 1);
    if (emulated == NULL || c->narrow.same == NULL) return USC_OK; /* the driver tells */
    usc_status st =
        usc_tensor_make(&run, emulated, USC_F64, c->device.ndim, c->device.sizes, err);
    const usc_tensor *yardstick =
        usc_case_fits(&c->yardstick, &c->truth) ? &c->yardstick : &c->truth;
    if (st == USC_OK)
        st = usc_judge_same_errors(&c->device, &c->truth, yardstick, &run, c->narrow.same,
                                   &same, err);
    if (st != USC_OK || !same) return st == USC_OK ? usc_case_go(c, next_run) : st;
    c->marks = c->narrow.same;
    if (!usc_case_put_right(c, &c->device)) return USC_OK; /* the driver tells */
    c->device = c->spared;
    c->d = NULL;
    c->narrow.weighing = true;
    return usc_case_pass(c, USC_STAGE_FLOAT);
}

static usc_status next_run(usc_case *c, usc_error *err)
{
    c->device = c->narrow.device;
    c->d = NULL;
    c->f = c->narrow.found;
    if (++c->narrow.row >= N_ROWS) return usc_case_pass(c, USC_STAGE_END);
    switch (rows[c->narrow.row].how) {
    case RESULT:
        c->narrow.of_inputs = NULL;
        return weigh(c, rounded(c, c->r), err);
    case BOTH:
        if (c->narrow.of_inputs == NULL) return usc_case_go(c, next_run);
        return weigh(c, rounded(c, c->narrow.of_inputs), err);
    case KERNEL:
    case INPUTS:
    case ARITHMETIC:
        break;
    }
    return usc_case_ask(c, USC_WANT_NARROW, c->narrow.row, take_run);
}

static usc_status take_run(usc_case *c, usc_error *err)
{
    const usc_tensor *run = c->given.a;
    if (!usc_case_given(c, USC_GIVEN_AS_ASKED) || run == NULL ||
        !usc_case_fits(run, &c->device) || !usc_case_is_float(run))
        return usc_case_go(c, next_run);
    const double *wide = usc_case_wide(c, run);
    if (wide == NULL || rows[c->narrow.row].how != INPUTS) return weigh(c, wide, err);
    double *to = c->narrow.inputs_room; /* the run itself may go */
    if (to == NULL) to = c->narrow.inputs_room = usc_case_room(c, c->n, sizeof *to);
    if (to == NULL) return USC_OK; /* the driver tells */
    c->narrow.of_inputs = memcpy(to, wide, (size_t)c->n * sizeof *to);
    return weigh(c, to, err);
}

/* ---- of an output that is kept ---- */

static usc_case_stage keep_run;

static usc_status keep_from(usc_case *c, int row)
{
    while (row < N_ROWS && hows[rows[row].how] == NULL)
        row++;
    return row < N_ROWS ? usc_case_ask(c, USC_WANT_NARROW, row, keep_run)
                        : usc_case_pass(c, USC_STAGE_END);
}

/* What gives the truth itself explains no mistake. */
static bool moves(usc_case *c, const double *run)
{
    for (int64_t i = 0; i < c->n; i++)
        if (run[i] != c->r[i] && !(isnan(run[i]) && isnan(c->r[i]))) return true;
    return false;
}

static usc_status keep_run(usc_case *c, usc_error *err)
{
    const int row = c->want.k;
    const usc_tensor *run = c->given.a;
    (void)err;
    if (usc_case_given(c, USC_GIVEN_AS_ASKED) && run != NULL &&
        usc_case_fits(run, &c->device) && usc_case_is_float(run)) {
        const double *wide = usc_case_wide(c, run);
        if (wide == NULL) return USC_OK; /* the driver tells */
        if (moves(c, wide)) usc_case_keep_narrow(c, usc_narrow_place(row), wide);
    }
    return keep_from(c, row + 1);
}

/* Asked of an output once, by the call's own reading. */
static bool may_keep(const usc_case *c)
{
    return c->reading.at == 0 && !c->narrow.tried && !c->o.free && !c->o.exact &&
           usc_case_is_float(&c->truth) && c->f.verdict != USC_VERDICT_UNJUDGED;
}

/* ---- in turn ---- */

bool usc_case_may_be_narrow(const usc_case *c)
{
    if (c->narrow.weighing) return true;
    const usc_dtype d = c->device.dtype;
    if (d != USC_F32 && d != USC_BF16 && d != USC_F16) return false;
    if (c->kept != NULL) return may_keep(c);
    return c->o.narrow && !c->narrow.tried && c->f.measured &&
           c->f.verdict == USC_VERDICT_WRONG;
}

usc_status usc_case_narrow(usc_case *c, usc_error *err)
{
    char text[64];
    (void)err;
    if (c->kept != NULL) {
        c->narrow.tried = true;
        return usc_case_load(c) ? keep_from(c, 0) : USC_OK; /* the driver tells */
    }
    if (!c->narrow.weighing) {
        c->narrow.tried = true;
        c->narrow.found = c->f;
        c->narrow.device = c->device;
        c->narrow.row = -1;
        if (!usc_case_load(c)) return USC_OK; /* the driver tells */
        return usc_case_go(c, next_run);
    }
    c->narrow.weighing = false;
    if (c->f.verdict != USC_VERDICT_PASS && c->f.verdict != USC_VERDICT_REDUCED)
        return usc_case_go(c, next_run);
    c->device = c->narrow.device;
    c->d = NULL;
    c->f = c->narrow.found;
    c->f.verdict = USC_VERDICT_REDUCED;
    c->f.factor = 0;
    c->factor_tried = true;
    usc_case_note(c, "%s has the numbers of %s", c->o.path,
                  words(&rows[c->narrow.row], text, sizeof text));
    return usc_case_pass(c, USC_STAGE_END);
}
