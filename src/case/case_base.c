// SPDX-License-Identifier: Apache-2.0
// What every stage of a case stands on: copies of operands, numbers as the device holds
// them, and how a stage asks and goes on. It calls no stage. Neighbours: case_state.h.
#include "case/case_state.h"
#include "kernels/kernels.h"

#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "kernels/walk_load.h"

static const struct {
    const char *text;
    bool must;
} wants[] = {
#define WANT_ROW(id, text, must) {text, must},
    USC_WANT_LIST(WANT_ROW)
#undef WANT_ROW
};

const char *usc_want_text(usc_want_kind kind)
{
    return kind >= 0 && kind < USC_N_WANTS ? wants[kind].text : "unknown";
}

bool usc_case_must_answer(usc_want_kind kind)
{
    return kind >= 0 && kind < USC_N_WANTS && wants[kind].must;
}

/* ---- operands ---- */

void *usc_case_room(usc_case *c, int64_t n, size_t size)
{
    if ((uint64_t)n > SIZE_MAX / 2 / size) {
        c->work.failed = true;
        return NULL;
    }
    void *room = usc_arena_take(&c->work, (size_t)n * size + 1);
    return room != NULL ? memset(room, 0, (size_t)n * size + 1) : NULL;
}

static int64_t numel(const usc_tensor *t)
{
    int64_t n = 0; /* of a tensor that exists: it fits */
    return usc_tensor_numel(t, &n, NULL) == USC_OK ? n : 0;
}

const void *usc_case_plain(usc_case *c, const usc_tensor *t)
{
    if (usc_tensor_contiguous(t)) return t->data;
    const int64_t n = numel(t);
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    unsigned char *out = usc_case_room(c, n, size);
    if (out == NULL) return NULL;
    const usc_walk walk = usc_walk_over(t);
    usc_walk_room room;
    for (int64_t i = 0; i < n; i += USC_JUDGE_BLOCK) {
        const size_t m = (size_t)(n - i < USC_JUDGE_BLOCK ? n - i : USC_JUDGE_BLOCK);
        memcpy(out + (size_t)i * size, usc_walk_raw(&walk, i, m, &room), m * size);
    }
    return out;
}

const double *usc_case_wide(usc_case *c, const usc_tensor *t)
{
    static const double none = 0; /* of outputs without elements, which lie nowhere */
    const int64_t n = numel(t);
    if (n == 0) return &none;
    const void *raw = usc_case_plain(c, t);
    if (raw == NULL || t->dtype == USC_F64) return raw;
    double *out = usc_case_room(c, n, sizeof *out);
    if (out != NULL) usc_kernels_widen(t->dtype, raw, out, (size_t)n);
    return out;
}

bool usc_case_load(usc_case *c)
{
    static const double none = 0;
    if (c->n == 0) {
        c->r = c->y = c->d = &none;
        return true;
    }
    if (c->r == NULL) c->r = usc_case_wide(c, &c->truth);
    if (c->y == NULL && usc_case_fits(&c->yardstick, &c->truth))
        c->y = usc_case_wide(c, &c->yardstick);
    if (c->d == NULL) c->d = usc_case_wide(c, &c->device);
    return !c->work.failed;
}

bool usc_case_fits(const usc_tensor *a, const usc_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->sizes, b->sizes, (size_t)a->ndim * sizeof a->sizes[0]) == 0;
}

bool usc_case_stacked(const usc_case *c, const usc_tensor *t)
{
    const int ndim = c->device.ndim;
    return t->dtype == c->device.dtype && t->ndim == ndim + 1 &&
           memcmp(&t->sizes[1], c->device.sizes, (size_t)ndim * sizeof t->sizes[0]) == 0;
}

bool usc_case_is_float(const usc_tensor *t)
{
    return usc_dtype_info_of(t->dtype)->kind == USC_KIND_FLOAT;
}

double usc_case_rounded(const usc_case *c, double v)
{
    unsigned char place[8];
    usc_dtype_narrow(c->device.dtype, &v, place, 1);
    usc_kernels_widen(c->device.dtype, place, &v, 1);
    return v;
}

double usc_case_ulp(const usc_case *c, double x)
{
    const usc_dtype_info *info = usc_dtype_info_of(c->device.dtype);
    int exponent;
    (void)frexp(fmax(fabs(x), ldexp(1, info->emin)), &exponent);
    return ldexp(1, exponent - info->sig_bits);
}

double usc_case_distance(const usc_case *c, double d, double r)
{
    const usc_dtype_info *info = usc_dtype_info_of(c->device.dtype);
    int exponent;
    const double size = fabs(d), least = ldexp(1, info->emin);
    (void)frexp(size, &exponent);
    const double power = size > 0 ? fmax(ldexp(1, exponent - 1), least) : least;
    const double above = ldexp(power, -info->sig_bits);
    const bool edge = size == power && size > least;
    const double beyond = copysign(1.0, d) * r - size;
    return fmax(fabs(beyond) - (beyond > 0 || !edge ? above : above / 2), 0);
}

bool usc_case_spare(usc_case *c, const usc_tensor *from)
{
    const size_t size = usc_dtype_info_of(from->dtype)->size;
    void *data = usc_case_room(c, c->n, size);
    const void *raw = usc_case_plain(c, from);
    if (data == NULL || raw == NULL) return false;
    memcpy(data, raw, (size_t)c->n * size);
    c->spare_room = data;
    return usc_tensor_make(&c->spared, data, from->dtype, from->ndim, from->sizes,
                           NULL) == USC_OK;
}

void usc_case_put(usc_case *c, int64_t i, double value)
{
    const size_t size = usc_dtype_info_of(c->device.dtype)->size;
    usc_dtype_narrow(c->device.dtype, &value, c->spare_room + (size_t)i * size, 1);
}

bool usc_case_put_right(usc_case *c, const usc_tensor *from)
{
    if (!usc_case_spare(c, from)) return false;
    for (int64_t i = 0; i < c->n; i++)
        if (c->marks[i]) usc_case_put(c, i, c->r[i]);
    return true;
}

/* ---- how a stage goes on ---- */

usc_status usc_case_ask(usc_case *c, usc_want_kind kind, int k, usc_case_stage *then)
{
    c->want = (usc_want){.kind = kind, .k = k, .reading = c->reading.at};
    c->answered = false;
    return usc_case_go(c, then);
}

usc_status usc_case_ask_for(usc_case *c, usc_want_kind kind, int k, usc_stage then)
{
    (void)usc_case_ask(c, kind, k, NULL);
    return usc_case_pass(c, then);
}

usc_status usc_case_go(usc_case *c, usc_case_stage *then)
{
    c->stage = then;
    c->passed_to = USC_STAGE_NONE;
    return USC_OK;
}

usc_status usc_case_pass(usc_case *c, usc_stage then)
{
    c->stage = NULL;
    c->passed_to = then;
    return USC_OK;
}

bool usc_case_given(const usc_case *c, usc_given_form form)
{
    return c->given.form == form;
}

void usc_case_forget(usc_case *c)
{
    usc_judge_close(c->look.judge);
    const usc_case fresh = {.alloc = c->alloc,
                            .n_threads = c->n_threads,
                            .work = c->work,
                            .found = c->found,
                            .own = c->own,
                            .keeping = c->keeping,
                            .all = c->all,
                            .n_all = c->n_all,
                            .all_room = c->all_room,
                            .o = c->o,
                            .device = c->device,
                            .bytes = c->bytes,
                            .n = c->n,
                            .whole = c->whole,
                            .large = c->large,
                            .work_of_sample = c->work_of_sample,
                            .fewest = c->fewest,
                            .reading = c->reading,
                            .apart = c->apart,
                            .chain = c->chain};
    *c = fresh;
}
