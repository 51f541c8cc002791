// SPDX-License-Identifier: Apache-2.0
// What a case asks, answered from files; and other people's rules. Neighbours:
// pack_operands.h.
#include "pack/pack_operands.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

usc_status usc_pack_say(const usc_pack_work *w, usc_verdict verdict, const char *path,
                        usc_error *err, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return usc_findings_say(usc_case_findings(w->c), verdict, path, text, err);
}

usc_status usc_pack_lack(usc_pack_work *w, const char *side, usc_verdict verdict,
                         const char *why, usc_error *err)
{
    w->lacks = side;
    return usc_pack_say(w, verdict, "", err, "%s", why);
}

const char *usc_pack_dtype_text(const usc_safetensor *t)
{
    return t->tensor.dtype != USC_DTYPE_NONE ? usc_dtype_info_of(t->tensor.dtype)->name
                                             : t->dtype_name;
}

/* ---- operands ---- */

static const usc_tensor *tensor_of(const usc_safetensor *t)
{
    return t != NULL ? &t->tensor : NULL;
}

/* One element of an operand of float32 or float64; 0 where there is none. */
static double at(const usc_safetensor *t, int64_t i)
{
    if (t == NULL) return 0;
    return t->tensor.dtype == USC_F64 ? ((const double *)t->tensor.data)[i]
                                      : (double)((const float *)t->tensor.data)[i];
}

/* S and N where so many losses were fed behind so many replays. */
typedef struct mixed {
    const usc_safetensor *s, *n;  /* of these replays */
    const usc_safetensor *of_all; /* N of all replays and these losses */
    int replays, losses;
} mixed;

static double squared(const usc_safetensor *t, int64_t i)
{
    const double x = at(t, i);
    return x * x;
}

/* Losses stand where the first replay did: S of them is S of that one. */
static double s_of(const usc_pack_operands *o, const mixed *m, int64_t i)
{
    const double sum = m->replays * squared(m->s, i) + m->losses * squared(o->s1, i);
    return sqrt(sum / (m->replays + m->losses));
}

/* N was kept of the losses behind all replays, of which a look may have seen fewer. */
static double n_of(const usc_pack_operands *o, const mixed *m, int64_t i)
{
    if (m->replays == o->replays) return at(m->of_all, i);
    const double lost =
        (o->replays + m->losses) * squared(m->of_all, i) - o->replays * squared(o->n4, i);
    const double sum = m->replays * squared(m->n, i) + fmax(lost, 0);
    return sqrt(sum / (m->replays + m->losses));
}

typedef double mix(const usc_pack_operands *o, const mixed *m, int64_t i);

static usc_status make_mixed(const usc_pack_work *w, const usc_pack_operands *o,
                             const mixed *m, mix *of, usc_tensor *out, usc_error *err)
{
    const usc_tensor *like = &o->reference->tensor;
    int64_t n = 0;
    usc_status st = usc_tensor_numel(like, &n, err);
    if (st != USC_OK) return st;
    if ((uint64_t)n > SIZE_MAX / 2 / sizeof(double)) return usc_no_memory(o->path, err);
    double *x = usc_arena_take(w->arena, (size_t)n * sizeof *x + 1);
    if (x == NULL) return usc_no_memory(o->path, err);
    for (int64_t i = 0; i < n; i++)
        x[i] = of(o, m, i);
    return usc_tensor_make(out, x, USC_F64, like->ndim, like->sizes, err);
}

/* ---- answers ---- */

static usc_given flag(bool value)
{
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .number = value};
}

static usc_given number(double value, double size)
{
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .number = value, .size = size};
}

static usc_given tensors(const usc_safetensor *a, const usc_safetensor *b,
                         const usc_safetensor *c)
{
    return (usc_given){.form = a != NULL ? USC_GIVEN_AS_ASKED : USC_GIVEN_NONE,
                       .a = tensor_of(a),
                       .b = tensor_of(b),
                       .c = tensor_of(c)};
}

static usc_given sums(const usc_safetensor *a, const usc_safetensor *b,
                      const usc_safetensor *c)
{
    usc_given given = tensors(a, b, c);
    given.form = USC_GIVEN_SUMS;
    return given;
}

static mixed after(const usc_pack_operands *o, int upto)
{
    if (upto == 1) return (mixed){.s = o->s1, .n = o->n1, .replays = 1};
    if (upto == 2) return (mixed){.s = o->s2, .n = o->n2, .replays = 2};
    return (mixed){.s = o->s4, .n = o->n4, .replays = o->replays};
}

static usc_given replays(const usc_pack_operands *o, int upto)
{
    const mixed m = after(o, upto);
    return sums(m.s, m.n, NULL);
}

static usc_given flushed(const usc_pack_operands *o, int k)
{
    const usc_safetensor *const all[] = {o->flushed1, o->flushed2, o->flushed3};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (all[i] != NULL && k-- == 0) return tensors(all[i], NULL, NULL);
    return (usc_given){.form = USC_GIVEN_NONE};
}

static usc_given narrow(const usc_pack_operands *o, int k)
{
#define USC_KEPT_OF(name) o->name,
    const usc_safetensor *const all[] = {USC_KEPT_NARROW_LIST(USC_KEPT_OF)};
#undef USC_KEPT_OF
    const int i = usc_narrow_place(k);
    return tensors(i >= 0 && i < (int)(sizeof all / sizeof all[0]) ? all[i] : NULL, NULL,
                   NULL);
}

static usc_given dtype(const usc_pack_operands *o)
{
    const bool wrong = o->other_dtype && o->usual_dtype != NULL;
    return (usc_given){.form = wrong ? USC_GIVEN_AS_ASKED : USC_GIVEN_NONE,
                       .text = o->usual_dtype};
}

/* Room for what an answer points to. */
typedef struct room {
    usc_tensor s, n, bytes;
    usc_choice choice;
    usc_case_output known;
} room;

static usc_given native(const usc_pack_operands *o, room *r)
{
    const usc_safetensor *own = o->native != NULL ? o->native : o->reference;
    usc_given given = tensors(own, NULL, NULL);
    given.text = own->dtype_name;
    if (own->tensor.dtype == USC_DTYPE_NONE) {
        r->bytes = usc_safetensor_bytes(own);
        given.a = &r->bytes;
    }
    return given;
}

static usc_given choice(const usc_pack_operands *o, room *r)
{
    if (o->choice == NULL) return (usc_given){.form = USC_GIVEN_NONE};
    r->choice = o->how;
    r->choice.values = &o->choice->tensor;
    return (usc_given){.form = USC_GIVEN_AS_ASKED, .choice = &r->choice};
}

static usc_status losses(const usc_pack_work *w, const usc_pack_operands *o,
                         const usc_want *want, room *r, usc_given *out, usc_error *err)
{
    const bool noise = want->kind == USC_WANT_NOISE;
    mixed m = after(o, want->upto);
    m.of_all = noise ? o->n_noise : o->n_far;
    m.losses = noise ? o->far + o->noise : o->far;
    const bool has_s = o->s4 != NULL || o->s1 != NULL;
    *out = sums(NULL, NULL, NULL);
    usc_status st = USC_OK;
    if (has_s) st = make_mixed(w, o, &m, s_of, &r->s, err);
    if (st == USC_OK && m.of_all != NULL) st = make_mixed(w, o, &m, n_of, &r->n, err);
    if (has_s) out->a = &r->s;
    if (m.of_all != NULL) out->b = &r->n;
    return st;
}

static usc_given unpromised(const usc_pack_operands *o, usc_want_kind kind)
{
    const bool corner = o->side_low != NULL;
    if (kind == USC_WANT_HELD && !corner) return tensors(o->unpromised, NULL, NULL);
    if (kind == USC_WANT_PROBE && corner)
        return sums(o->side_low, o->side_high, o->unpromised);
    return (usc_given){.form = USC_GIVEN_NONE};
}

/* What is known of an output by one reading of the call. */
static usc_case_output known_of(const usc_pack_operands *o)
{
    return (usc_case_output){
        .path = o->path,
        .free = o->free,
        .carries = o->carries,
        .exact = o->exact,
        .pairs = o->pairs,
        .never_rounds = o->never_rounds,
        .alone = o->alone,
        .rounding = o->rounding,
        .linear = o->linear || o->products >= 1,
        .adds = o->adds,
        .products = o->multiplies,
        .gradient = o->side_low != NULL,
        .single = true,
        .admissible = o->admissible != NULL,
        .two_functions = o->functions,
        .narrow = !o->bare,
        .bare = o->bare,
        .readings = o->n_readings > 0 || o->own_low != NULL || o->chain_values != NULL,
    };
}

static usc_given reference(const usc_pack_operands *o)
{
    usc_given given = tensors(o->reference, o->yardstick, o->excepted);
    given.text = o->note;
    if (o->refused != NULL && o->refused[0] != '\0')
        given.number = usc_excuse_by_code(o->refused);
    else if (o->reading == NULL || o->reading[0] == '\0')
        given.c = NULL;
    return given;
}

/* The k-th reading that such a want asks for; NULL beyond. */
static const usc_pack_operands *find(const usc_pack_operands *own, usc_want_kind kind,
                                     int k)
{
    for (int i = 0; i < own->n_readings; i++)
        if (strcmp(own->readings[i].reading, usc_want_text(kind)) == 0 && k-- == 0)
            return &own->readings[i];
    return NULL;
}

/* Those of the reading that a want is about. */
static const usc_pack_operands *read_by(const usc_pack_operands *own,
                                        const usc_want *want)
{
    const int number = want->reading;
    const usc_pack_operands *other = NULL;
    if (number == USC_READING_UNREAD) other = find(own, USC_WANT_UNREAD, 0);
    if (number == USC_READING_UNWRITTEN) other = find(own, USC_WANT_UNWRITTEN, 0);
    if (number >= USC_READING_OTHERS)
        other = find(own, USC_WANT_READING, number - USC_READING_OTHERS);
    return other != NULL ? other : own;
}

static usc_given reading(const usc_pack_operands *own, const usc_want *want, room *r)
{
    const usc_pack_operands *other = find(own, want->kind, want->k);
    if (other == NULL) return (usc_given){.form = USC_GIVEN_NONE};
    usc_given given = reference(other);
    r->known = known_of(other);
    given.known = &r->known;
    return given;
}

/* What a pack has is answered; it has nothing of all other wants. */
static usc_status answer(const usc_pack_work *w, const usc_pack_operands *own,
                         const usc_want *want, room *r, usc_given *out, usc_error *err)
{
    *out = (usc_given){.form = USC_GIVEN_NONE};
    const usc_want_kind kind = want->kind;
    const usc_pack_operands *o = read_by(own, want);
    if (kind == USC_WANT_LOSS || kind == USC_WANT_NOISE)
        return losses(w, o, want, r, out, err);
    if (kind == USC_WANT_REFERENCE) *out = reference(o);
    if (kind == USC_WANT_UNREAD || kind == USC_WANT_UNWRITTEN || kind == USC_WANT_READING)
        *out = reading(own, want, r);
    if (kind == USC_WANT_OWN_STEP && o->own_low != NULL)
        *out = sums(o->own_low, o->own_high, o->own_nan);
    if (kind == USC_WANT_CHAIN && o->chain_values != NULL)
        *out = sums(o->chain_values, o->chain_odd, o->chain_runs);
    if (kind == USC_WANT_DTYPE) *out = dtype(own);
    if (kind == USC_WANT_NATIVE) *out = native(o, r);
    if (kind == USC_WANT_SLOPE && o->products >= 1) *out = sums(o->slope, NULL, NULL);
    if (kind == USC_WANT_PRODUCTS) *out = number(o->products, 0);
    if (kind == USC_WANT_FUNCTIONS) *out = flag(o->functions);
    if (kind == USC_WANT_REPLAY) *out = replays(o, want->upto);
    if (kind == USC_WANT_FAN_IN) *out = number(o->fan_in, o->natural);
    if (kind == USC_WANT_NARROW) *out = narrow(o, want->k);
    if (kind == USC_WANT_FLUSHED) *out = flushed(o, want->k);
    if (kind == USC_WANT_WHOLE) *out = flag(o->whole);
    if (kind == USC_WANT_ROUNDED && o->kinds != NULL) *out = sums(o->kinds, NULL, NULL);
    if (kind == USC_WANT_INFINITE && o->kinds != NULL) *out = sums(o->kinds, NULL, NULL);
    if (kind == USC_WANT_RUN && o->run_low != NULL)
        *out = sums(o->run_low, o->run_high, o->run_least);
    if (kind == USC_WANT_RUN_STEPS) *out = tensors(o->run_at, o->run_values, NULL);
    if (kind == USC_WANT_LOST && o->lost != NULL)
        *out = sums(o->lost, o->lost_cut, o->lost_shares);
    if (kind == USC_WANT_EXACT) *out = tensors(o->ties, NULL, NULL);
    if (kind == USC_WANT_OVERFLOWS) *out = flag(o->overflows);
    if (kind == USC_WANT_STEPS) *out = tensors(o->jump_at, o->jump_values, NULL);
    if (kind == USC_WANT_NEAR_STEP && o->near_steps != NULL)
        *out = sums(o->near_low, o->near_high, o->near_steps);
    if (kind == USC_WANT_ADMISSIBLE) *out = sums(o->admissible, NULL, NULL);
    if (kind == USC_WANT_TIED) *out = tensors(o->sums_low, o->sums_high, NULL);
    if (kind == USC_WANT_ADDED && o->added_low != NULL)
        *out = sums(o->added_low, o->added_high, NULL);
    if (kind == USC_WANT_CHOICE) *out = choice(o, r);
    if (kind == USC_WANT_USUAL) *out = tensors(o->usual, NULL, NULL);
    if (kind == USC_WANT_WRITES) *out = tensors(o->write_at, o->writes, o->write_rows);
    if (kind == USC_WANT_HELD || kind == USC_WANT_PROBE) *out = unpromised(o, kind);
    return USC_OK;
}

static usc_status judge_own(const usc_pack_work *w, const usc_safetensor *device,
                            const usc_pack_operands *o, usc_error *err)
{
    const usc_tensor bytes = usc_safetensor_bytes(device);
    const bool unknown = device->tensor.dtype == USC_DTYPE_NONE ||
                         o->reference->tensor.dtype == USC_DTYPE_NONE;
    usc_case_output output = known_of(o);
    output.device = &device->tensor;
    output.bytes = unknown ? &bytes : NULL;
    output.dtype = unknown ? device->dtype_name : NULL;
    usc_want want;
    usc_given given;
    room r;
    usc_status st = usc_case_begin(w->c, &output, err);
    if (st == USC_OK) st = usc_case_next(w->c, &want, err);
    while (st == USC_OK && want.kind != USC_WANT_NOTHING) {
        st = answer(w, o, &want, &r, &given, err);
        if (st == USC_OK) st = usc_case_give(w->c, &given, err);
        if (st == USC_OK) st = usc_case_next(w->c, &want, err);
    }
    return st;
}

/* ---- other people's rules ---- */

static usc_status judge_foreign(usc_pack_work *w, const usc_safetensor *device,
                                const usc_pack_operands *o, usc_error *err)
{
    usc_opinion *said = &w->said.items[w->said.n];
    usc_standard_operands held = {.device = &device->tensor, .op = o->op};
    held.of[usc_pack_is_float(o->reference) ? USC_OPERAND_REFERENCE
                                            : USC_OPERAND_NATIVE] = &o->reference->tensor;
    if (o->native != NULL) held.of[USC_OPERAND_NATIVE] = &o->native->tensor;
    if (o->yardstick != NULL) held.of[USC_OPERAND_YARDSTICK] = &o->yardstick->tensor;
    usc_status st = usc_standard_judge(&w->standard, &held, said, err);
    if (st != USC_OK) return st;
    w->said.paths[w->said.n++] = o->path;
    usc_finding found = {.path = o->path,
                         .verdict = said->verdict,
                         .reason = said->reason,
                         .bits = (double)NAN, /* it has none */
                         .yardstick_bits = (double)NAN,
                         .ndim = device->tensor.ndim};
    memcpy(found.sizes, device->tensor.sizes, sizeof found.sizes);
    st = usc_tensor_numel(&device->tensor, &found.n, err);
    return st == USC_OK ? usc_findings_add(usc_case_findings(w->c), &found, err) : st;
}

usc_status usc_pack_standard(usc_pack_work *w, usc_error *err)
{
    int n;
    const char *name = w->options->standard;
    const usc_status st =
        usc_standard_parse(name != NULL ? name : "ulpscope", &w->standard, err);
    w->foreign = st == USC_OK && w->standard.info != usc_standard_list(&n);
    return st;
}

/* ---- one output ---- */

usc_status usc_pack_open_case(usc_pack_work *w, int n_most, usc_error *err)
{
    const usc_case_options options = {.alloc = w->options->alloc,
                                      .n_threads = w->options->n_threads};
    const size_t n = w->foreign ? (size_t)n_most : 0;
    usc_case_close(w->c);
    w->c = NULL;
    w->lacks = NULL;
    const size_t seen = ((size_t)n_most + 1) * sizeof *w->seen;
    w->said.n = 0;
    w->said.items = usc_arena_take(w->arena, n * sizeof *w->said.items + 1);
    w->said.paths = usc_arena_take(w->arena, n * sizeof *w->said.paths + 1);
    w->seen = usc_arena_take(w->arena, seen);
    if (w->said.items == NULL || w->said.paths == NULL || w->seen == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "findings: no memory");
    memset(w->seen, 0, seen);
    return usc_case_open(&options, &w->c, err);
}

usc_status usc_pack_output(usc_pack_work *w, const usc_safetensor *device,
                           const usc_pack_operands *o, usc_error *err)
{
    const usc_status st = usc_pack_check(o, err);
    if (st != USC_OK) return st;
    const bool same = usc_pack_same_shape(&device->tensor, &o->reference->tensor);
    const bool computed = device->tensor.dtype != USC_DTYPE_NONE &&
                          o->reference->tensor.dtype != USC_DTYPE_NONE;
    if (w->foreign && same && computed && !o->free && !o->other_dtype &&
        usc_pack_is_float(device) == usc_pack_is_float(o->reference))
        return judge_foreign(w, device, o, err);
    w->seen[usc_findings_count(usc_case_findings(w->c))] = (usc_pack_seen){device, *o};
    return judge_own(w, device, o, err);
}
