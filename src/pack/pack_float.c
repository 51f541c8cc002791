// SPDX-License-Identifier: Apache-2.0
// The verdict on one output of floats from stored operands, by the looks that a check
// takes (python/ulpscope/_outputs.py): of each, S and N come as numbers per element and
// are given to a judge as two replays, up and down, that show exactly them. Neighbour:
// pack_output.c.
#include "kernels/kernels.h"
#include "pack/pack_finding.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define DELTA 0x1p-20    /* by which a replay moves the inputs */
#define ROUNDING 0x1p-24 /* of float32 */
#define EPS 4.0          /* a jump is met within so many ulps of 1 */
#define MOST_BITS_LESS 3 /* what only other roundings excuse does not decide alone */
#define NO_BIT 8         /* an error of 1/8 and more leaves none right */
#define MOST_SHARED 0.5  /* of the elements: more, and what is left says little */
#define MOST_AT_CORNERS (1 / 32.) /* of the elements: python/ulpscope/_excuses.py */
#define JUMP 0x1p-10              /* of the result: less is no other side of a corner */
#define ROUNDINGS 0x1p-18         /* beyond a side */

enum { UP, LOW_UP, DOWN, LOW_DOWN, N_REPLAYS };

/* What a look needs, side by side. */
typedef struct operands {
    usc_tensor device, reference, yardstick;
    usc_tensor replays[N_REPLAYS];
    double *rooms[N_REPLAYS]; /* their values, filled look by look */
    unsigned char *copy;      /* the device's values where they may be written */
    usc_tensor flushed[USC_PACK_FLUSHED];
    int n_flushed;
    int64_t n;
} operands;

/* ---- operands ---- */

/* Room for `like` in another dtype. */
static usc_status room_like(const usc_pack_work *w, const usc_tensor *like,
                            usc_dtype dtype, usc_tensor *out, void **data, usc_error *err)
{
    int64_t n = 0;
    usc_status st = usc_tensor_numel(like, &n, err);
    if (st != USC_OK) return st;
    const size_t size = usc_dtype_info_of(dtype)->size;
    if ((uint64_t)n > SIZE_MAX / 2 / size) return usc_pack_no_memory("an output", err);
    *data = usc_arena_take(w->arena, (size_t)n * size + 1);
    if (*data == NULL) return usc_pack_no_memory("an output", err);
    return usc_tensor_make(out, *data, dtype, like->ndim, like->sizes, err);
}

/* The values of `t` as float64; where they lie already, without a copy. */
static usc_status widened(const usc_pack_work *w, const usc_safetensor *t,
                          usc_tensor *out, usc_error *err)
{
    if (t->tensor.dtype == USC_F64) {
        *out = t->tensor;
        return USC_OK;
    }
    int64_t n = 0;
    usc_status st = usc_tensor_numel(&t->tensor, &n, err);
    void *data = NULL;
    if (st == USC_OK) st = room_like(w, &t->tensor, USC_F64, out, &data, err);
    if (st == USC_OK && n > 0)
        usc_kernels_widen(t->tensor.dtype, t->tensor.data, data, (size_t)n);
    return st;
}

static usc_status load(const usc_pack_work *w, const usc_safetensor *device,
                       const usc_pack_operands *o, operands *x, usc_error *err)
{
    *x = (operands){.device = device->tensor};
    usc_status st = usc_tensor_numel(&x->device, &x->n, err);
    if (st == USC_OK) st = widened(w, o->reference, &x->reference, err);
    if (st == USC_OK && o->yardstick != NULL)
        st = widened(w, o->yardstick, &x->yardstick, err);
    else if (st == USC_OK)
        x->yardstick = x->reference;
    for (int i = 0; i < USC_PACK_FLUSHED && st == USC_OK; i++)
        if (o->flushed[i] != NULL)
            st = widened(w, o->flushed[i], &x->flushed[x->n_flushed++], err);
    for (int i = 0; i < N_REPLAYS && st == USC_OK; i++) {
        void *data = NULL;
        st = room_like(w, &x->reference, USC_F64, &x->replays[i], &data, err);
        x->rooms[i] = data;
    }
    return st;
}

/* One element of an operand of float32 or float64; 0 where there is none. */
static double at(const usc_safetensor *t, int64_t i)
{
    if (t == NULL) return 0;
    return t->tensor.dtype == USC_F64 ? ((const double *)t->tensor.data)[i]
                                      : (double)((const float *)t->tensor.data)[i];
}

/* S of a look. Losses were fed as replays that stood where the first one did. */
static double s_at(const usc_pack_operands *o, usc_pack_look look, int64_t i)
{
    if (look <= USC_PACK_MORE) return at(o->s[look], i);
    const double more = look == USC_PACK_FAR ? o->far : o->far + o->noise;
    const double s = at(o->s[USC_PACK_MORE], i), first = at(o->s[USC_PACK_FIRST], i);
    return sqrt((o->replays * s * s + more * first * first) / (o->replays + more));
}

/* The replays whose S and N are those of a look. Where nothing is known but the
 * reference, N = |R| / 2: the operator counts as inexact and no scale changes. */
static void fill_replays(const usc_pack_operands *o, usc_pack_look look,
                         const operands *x)
{
    const double *r = x->reference.data;
    double *of[N_REPLAYS];
    for (int k = 0; k < N_REPLAYS; k++)
        of[k] = x->rooms[k];
    for (int64_t i = 0; i < x->n; i++) {
        const double s = s_at(o, look, i) * DELTA;
        const double n =
            o->bare ? fabs(r[i]) * (0.5 * ROUNDING) : at(o->n[look], i) * ROUNDING;
        of[UP][i] = r[i] + s;
        of[DOWN][i] = r[i] - s;
        of[LOW_UP][i] = of[UP][i] + n;
        of[LOW_DOWN][i] = of[DOWN][i] + n;
    }
}

/* ---- looks ---- */

static usc_status appeal(usc_judge *judge, const usc_pack_operands *o, usc_pack_look look,
                         const operands *x, usc_judgement *j, usc_error *err)
{
    usc_appeal a = {.fan_in = o->fan_in >= 1 ? o->fan_in : 1, .natural = o->natural};
    if (look == USC_PACK_SLOPE) {
        a.fan_in = o->products;
        return usc_judge_appeal(judge, &a, j, err);
    }
    a.movement = look == USC_PACK_MORE && j->exact && o->never_rounds;
    usc_status st = USC_OK;
    for (int i = 0; st == USC_OK && (i == 0 || i < x->n_flushed); i++) {
        a.flushed = i < x->n_flushed ? &x->flushed[i] : NULL;
        st = usc_judge_appeal(judge, &a, j, err);
        if (j->verdict == USC_VERDICT_PASS) break;
    }
    return st;
}

/* What one look says; *decided where a check would look no further. */
static usc_status look_once(usc_judge *judge, const usc_pack_operands *o,
                            usc_pack_look look, const operands *x, usc_judgement *j,
                            bool *decided, usc_error *err)
{
    fill_replays(o, look, x);
    usc_status st = usc_judge_replay(judge, &x->replays[UP], &x->replays[LOW_UP], err);
    if (st == USC_OK)
        st = usc_judge_replay(judge, &x->replays[DOWN], &x->replays[LOW_DOWN], err);
    if (st == USC_OK) st = usc_judge_look(judge, j, err);
    if (st != USC_OK) return st;
    *decided = !j->needs_appeal;
    const bool appeals = look == USC_PACK_FIRST || look == USC_PACK_SECOND
                             ? false
                             : look >= USC_PACK_FAR || j->needs_appeal;
    if (appeals) st = appeal(judge, o, look, x, j, err);
    if (appeals) *decided = j->verdict == USC_VERDICT_PASS;
    if (look == USC_PACK_SLOPE) {
        *decided = j->verdict == USC_VERDICT_PASS;
        j->bound = j->n_mismatch > 0; /* without N, bits are a lower bound */
    }
    return st;
}

static usc_status keep(usc_judge *judge, const usc_judgement *j, usc_pack_finding *f,
                       usc_error *err)
{
    f->j = *j;
    f->verdict = j->verdict;
    f->measured = true;
    (void)snprintf(f->reason, sizeof f->reason, "%s", j->reason);
    f->n_examples = 0;
    if (f->verdict == USC_VERDICT_PASS) return USC_OK;
    return usc_judge_worst(judge, USC_PACK_EXAMPLES, f->examples, &f->n_examples, err);
}

static usc_status open_judge(const usc_pack_work *w, const usc_pack_operands *o,
                             const operands *x, usc_judge **out, usc_error *err)
{
    const usc_judge_options options = {.alloc = w->options->alloc,
                                       .n_threads = w->options->n_threads,
                                       .pairs = o->pairs};
    return usc_judge_open(&x->device, &x->reference, &x->yardstick, &options, out, err);
}

/* One look by a judge of its own. */
static usc_status take_look(const usc_pack_work *w, const usc_pack_operands *o,
                            usc_pack_look look, const operands *x, usc_pack_finding *f,
                            bool *decided, usc_error *err)
{
    usc_judge *judge = NULL;
    usc_judgement j;
    usc_status st = open_judge(w, o, x, &judge, err);
    if (st == USC_OK) st = look_once(judge, o, look, x, &j, decided, err);
    const bool bad = st == USC_OK &&
                     (j.verdict == USC_VERDICT_WRONG || j.verdict == USC_VERDICT_REDUCED);
    if (bad && look == USC_PACK_NOISE)
        j.bits = fmax(fmin(f->j.bits, j.bits), j.bits - MOST_BITS_LESS);
    if (st == USC_OK && (look != USC_PACK_SLOPE || *decided))
        st = keep(judge, &j, f, err);
    usc_judge_close(judge);
    return st;
}

/* Whether R alone already shows that the output is good. */
static usc_status look_bare(const usc_pack_work *w, const usc_pack_operands *o,
                            const operands *x, usc_pack_finding *f, bool *decided,
                            usc_error *err)
{
    usc_judge *judge = NULL;
    usc_judgement j;
    usc_status st = open_judge(w, o, x, &judge, err);
    if (st == USC_OK) st = usc_judge_look(judge, &j, err);
    *decided = st == USC_OK && j.verdict == USC_VERDICT_PASS;
    if (*decided) st = keep(judge, &j, f, err);
    usc_judge_close(judge);
    return st;
}

static bool blamed(const usc_pack_finding *f)
{
    return f->verdict == USC_VERDICT_WRONG || f->verdict == USC_VERDICT_REDUCED;
}

static bool accused(const usc_pack_finding *f)
{
    return blamed(f) || f->verdict == USC_VERDICT_NONFINITE;
}

static usc_status judge_once(const usc_pack_work *w, const usc_pack_operands *o,
                             const operands *x, usc_pack_finding *f, usc_error *err)
{
    bool decided = false;
    usc_status st = look_bare(w, o, x, f, &decided, err);
    if (st == USC_OK && !decided && o->products >= 1)
        st = take_look(w, o, USC_PACK_SLOPE, x, f, &decided, err);
    for (int look = USC_PACK_FIRST; look < USC_PACK_LOOKS && st == USC_OK; look++) {
        if (decided || (look >= USC_PACK_FAR && !blamed(f))) break;
        if (look == USC_PACK_FAR && (o->bare || o->never_rounds)) break;
        st = take_look(w, o, (usc_pack_look)look, x, f, &decided, err);
    }
    return st;
}

/* ---- elements that are nobody's fault ---- */

/* A copy of the device's output that may be written. */
static usc_status copied(const usc_pack_work *w, const operands *x, operands *out,
                         usc_error *err)
{
    *out = *x;
    const size_t size = usc_dtype_info_of(x->device.dtype)->size;
    void *data = NULL;
    const usc_status st =
        room_like(w, &x->device, x->device.dtype, &out->device, &data, err);
    out->copy = data;
    if (st == USC_OK && x->n > 0) memcpy(out->copy, x->device.data, (size_t)x->n * size);
    return st;
}

static double got(const usc_tensor *t, int64_t i)
{
    double v;
    const size_t size = usc_dtype_info_of(t->dtype)->size;
    usc_kernels_widen(t->dtype, (const char *)t->data + (size_t)i * size, &v, 1);
    return v;
}

/* Writes the true value; whether that changes anything. */
static bool put_right(operands *x, int64_t i)
{
    unsigned char was[16];
    const double *r = x->reference.data;
    const size_t size = usc_dtype_info_of(x->device.dtype)->size;
    unsigned char *place = x->copy + (size_t)i * size;
    memcpy(was, place, size);
    usc_dtype_narrow(x->device.dtype, &r[i], place, 1);
    return memcmp(was, place, size) != 0;
}

/* A number as a dtype holds it. */
static double rounded(usc_dtype dtype, double v)
{
    unsigned char place[16];
    usc_dtype_narrow(dtype, &v, place, 1);
    usc_kernels_widen(dtype, place, &v, 1);
    return v;
}

/* One element with the truth and float32's, as they are and as the output's dtype has
 * them. */
typedef struct known {
    double d, r, y, want, near;
} known;

static known known_at(const operands *x, int64_t i)
{
    const double r = ((const double *)x->reference.data)[i];
    const double y = ((const double *)x->yardstick.data)[i];
    return (known){got(&x->device, i), r, y, rounded(x->device.dtype, r),
                   rounded(x->device.dtype, y)};
}

/* Whether float32 on the CPU gives no number where there is one, or, because a step
 * inside overflows, one without a right bit. */
static bool is_lost(const usc_pack_operands *o, const known *k)
{
    if (isfinite(k->d)) return isfinite(k->want) && !isfinite(k->y);
    return o->overflows && isfinite(k->r) && k->near != k->want &&
           !(fabs(k->y - k->r) < fabs(k->r) / NO_BIT);
}

/* Whether float32 gives no number where there is one, and the device just the same. */
static bool is_shared(const known *k)
{
    const bool same = k->d == k->near || (isnan(k->d) && isnan(k->near));
    return same && isfinite(k->want) && !isfinite(k->near);
}

/* Without the elements at which float32 itself fails: any answer there is as good as the
 * CPU's. Where it is the CPU's, and rare, the others are judged; else `unjudged`. */
static usc_status without_lost(const usc_pack_work *w, const usc_pack_operands *o,
                               const operands *x, usc_pack_finding *f, usc_error *err)
{
    operands rest;
    usc_pack_finding others = *f;
    int64_t n_lost = 0;
    const bool shared = f->verdict == USC_VERDICT_UNJUDGED;
    usc_status st = copied(w, x, &rest, err);
    for (int64_t i = 0; i < x->n && st == USC_OK; i++) {
        const known k = known_at(x, i);
        if (!(shared ? is_shared(&k) : is_lost(o, &k))) continue;
        n_lost++;
        (void)put_right(&rest, i);
    }
    const bool many = shared && (double)n_lost > MOST_SHARED * (double)x->n;
    if (st != USC_OK || n_lost == 0 || many) return st;
    st = judge_once(w, o, &rest, &others, err);
    if (st == USC_OK && shared && others.verdict == USC_VERDICT_PASS) {
        *f = others;
        f->n_shared = n_lost;
    }
    if (st != USC_OK || shared || accused(&others)) return st;
    usc_pack_say(f, USC_VERDICT_UNJUDGED, o->path,
                 "float32 itself overflows at %lld of %lld elements", (long long)n_lost,
                 (long long)x->n);
    f->j.n = x->n;
    return USC_OK;
}

/* The device's output with the true NaN or Inf where it has another that float32 gives as
 * well if its roundings fall otherwise; judged again. */
static usc_status without_other_kinds(const usc_pack_work *w, const usc_pack_operands *o,
                                      operands *x, usc_pack_finding *f, usc_error *err)
{
    operands rest;
    bool any = false;
    const uint8_t *kinds = o->kinds->tensor.data;
    usc_status st = copied(w, x, &rest, err);
    for (int64_t i = 0; i < x->n && st == USC_OK; i++) {
        const known k = known_at(x, i);
        const unsigned kind = isnan(k.d) ? 1 : k.d > 0 ? 2 : 4;
        const bool other = k.want != k.d && !(isnan(k.want) && isnan(k.d));
        if (isfinite(k.r) || isfinite(k.d) || !other || (kinds[i] & kind) == 0) continue;
        (void)put_right(&rest, i);
        any = true;
    }
    if (st != USC_OK || !any) return st;
    *x = rest;
    return judge_once(w, o, x, f, err);
}

/* What a check excuses: docs/verdict.md. */
static usc_status excuse(const usc_pack_work *w, const usc_pack_operands *o,
                         const operands *given, usc_pack_finding *f, usc_error *err)
{
    operands x = *given;
    usc_status st = USC_OK;
    if (o->bare) return USC_OK;
    if (f->verdict == USC_VERDICT_NONFINITE && o->kinds != NULL)
        st = without_other_kinds(w, o, &x, f, err);
    if (st != USC_OK || f->verdict == USC_VERDICT_PASS) return st;
    return without_lost(w, o, &x, f, err);
}

/* Judged again without the steps that a replay took just as the device did. */
static usc_status without_jumps(const usc_pack_work *w, const usc_pack_operands *o,
                                const operands *x, usc_pack_finding *f, usc_error *err)
{
    int64_t n_jumps = 0;
    operands rest;
    bool any = false;
    usc_status st = usc_tensor_numel(&o->jump_at->tensor, &n_jumps, err);
    if (st == USC_OK) st = copied(w, x, &rest, err);
    if (st != USC_OK) return st;
    const usc_dtype_info *info = usc_dtype_info_of(x->device.dtype);
    const double near = EPS * ldexp(1, 1 - info->sig_bits);
    const int64_t *places = o->jump_at->tensor.data;
    const double *values = o->jump_values->tensor.data;
    for (int64_t i = 0; i < n_jumps; i++) {
        if (places[i] < 0 || places[i] >= x->n) continue;
        const double d = got(&x->device, places[i]);
        if (!(fabs(d - values[i]) <= near * fabs(values[i]))) continue;
        (void)put_right(&rest, places[i]);
        any = true;
    }
    return any ? judge_once(w, o, &rest, f, err) : USC_OK;
}

/* Whether an output takes another side of a corner at element i than the truth, and one
 * that lies between both. The rule: _corners.py. */
static bool takes_side(const usc_pack_operands *o, const operands *x, int64_t i)
{
    const known k = known_at(x, i);
    const double low = ((const double *)o->side_low->tensor.data)[i];
    const double high = ((const double *)o->side_high->tensor.data)[i];
    const double size = fmax(fabs(low), fabs(high));
    const double ulp = ldexp(1, 1 - usc_dtype_info_of(x->device.dtype)->sig_bits);
    const double slack = fmax(ROUNDINGS, ulp) * size;
    return fabs(k.d - k.r) > JUMP * size && k.d >= low - slack && k.d <= high + slack;
}

/* Elements that an excuse covers, in marks of one byte; none where they are too many. */
static uint8_t *excused(const usc_pack_work *w, const usc_pack_operands *o,
                        const operands *x)
{
    uint8_t *marks = usc_pack_marks(w, x->n);
    int64_t n_taken = 0;
    if (marks == NULL) return NULL;
    const bool corner = o->side_low != NULL;
    for (int64_t i = 0; i < x->n; i++) {
        marks[i] = usc_pack_unpromised(o, i) && (!corner || takes_side(o, x, i));
        n_taken += marks[i];
    }
    if (corner && (double)n_taken > fmax(1, MOST_AT_CORNERS * (double)x->n))
        memset(marks, 0, (size_t)x->n);
    return marks;
}

/* `undefined` where only elements fail of which nothing is promised. */
static usc_status without_unpromised(const usc_pack_work *w, const usc_pack_operands *o,
                                     const operands *x, usc_pack_finding *f,
                                     usc_error *err)
{
    operands rest;
    usc_pack_finding others = *f;
    bool any = false;
    const uint8_t *marks = excused(w, o, x);
    if (marks == NULL) return usc_pack_no_memory("an output", err);
    usc_status st = copied(w, x, &rest, err);
    for (int64_t i = 0; i < x->n && st == USC_OK; i++)
        if (marks[i]) any |= put_right(&rest, i);
    if (st == USC_OK && any) st = judge_once(w, o, &rest, &others, err);
    if (st == USC_OK && any && others.verdict == USC_VERDICT_PASS)
        usc_pack_say_undefined(o, f->j.n, f);
    return st;
}

/* An operator that rounds gives the exact result; subnormals may be flushed. */
static usc_status check_rounding(const usc_pack_work *w, const operands *x,
                                 usc_pack_finding *f, usc_error *err)
{
    int64_t n_open = 0;
    operands right;
    usc_status st = copied(w, x, &right, err);
    if (st != USC_OK) return st;
    uint8_t *open = usc_pack_marks(w, x->n);
    if (open == NULL) return usc_pack_no_memory("an output", err);
    const double tiny = ldexp(1, usc_dtype_info_of(x->device.dtype)->emin);
    for (int64_t i = 0; i < x->n; i++) {
        (void)put_right(&right, i);
        const double d = got(&x->device, i), r = got(&right.device, i);
        const bool same = d == r || (isnan(d) && isnan(r));
        open[i] = !same && !(d == 0 && fabs(r) < tiny);
        n_open += open[i];
    }
    if (n_open > 0) usc_pack_say_differ(&x->device, &right.device, open, x->n, f);
    return USC_OK;
}

usc_status usc_pack_float(const usc_pack_work *w, const usc_safetensor *device,
                          const usc_pack_operands *o, usc_pack_finding *f, usc_error *err)
{
    operands x;
    usc_status st = load(w, device, o, &x, err);
    f->wide = device->tensor.dtype == USC_F64;
    if (st == USC_OK) st = judge_once(w, o, &x, f, err);
    if (st == USC_OK && f->verdict == USC_VERDICT_PASS && o->rounding)
        return check_rounding(w, &x, f, err);
    if (st == USC_OK && f->verdict != USC_VERDICT_PASS) st = excuse(w, o, &x, f, err);
    if (st == USC_OK && accused(f) && o->jump_at != NULL)
        st = without_jumps(w, o, &x, f, err);
    if (st == USC_OK && accused(f) && o->unpromised != NULL)
        st = without_unpromised(w, o, &x, f, err);
    return st;
}
