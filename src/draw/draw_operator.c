// SPDX-License-Identifier: Apache-2.0
// Which operator draws by which law, and from which of its arguments the parameters come:
// one row for each. The laws: draw_law.c, draw_choice.c, draw_drop.c.
#include "draw/draw_drop.h"
#include "draw/draws.h"

#include "base/compiler.h"
#include "base/float_env.h"
#include "case/findings.h"

#include <math.h>
#include <string.h>

/* What an operator draws. */
typedef enum draw_kind {
    BY_LAW,
    ANY_WHOLE, /* whole numbers up to what the dtype holds, where nothing bounds them */
    PERMUTATION,
    CATEGORIES,
    DROPOUT,
    SLOPES, /* of rrelu */
} draw_kind;

/* An argument that a parameter comes from; "": none, the number always. */
typedef struct draw_source {
    const char *name, *or_else;
    double usual;
} draw_source;

typedef struct draw_row {
    const char *op; /* without the underscore of what writes in place */
    draw_kind kind;
    const usc_law *law;
    draw_source from[USC_LAW_PARAMETERS];
    usc_drop_form form;
} draw_row;

#define LAW(op, law, ...)                                                                \
    {                                                                                    \
        op, BY_LAW, &usc_law_##law, {__VA_ARGS__},                                       \
        {                                                                                \
            0                                                                            \
        }                                                                                \
    }
#define UNSAID ((double)NAN) /* no usual value: what the call says */
#define NOTHING                                                                          \
    {                                                                                    \
        "", NULL, 0                                                                      \
    }
#define ZERO                                                                             \
    {                                                                                    \
        "", NULL, 0                                                                      \
    }
#define ONE                                                                              \
    {                                                                                    \
        "", NULL, 1                                                                      \
    }
#define DROP(op, ...)                                                                    \
    {                                                                                    \
        op, DROPOUT, NULL, {{"p", NULL, 0.5}},                                           \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define SLOPE(op)                                                                        \
    {                                                                                    \
        op, SLOPES, NULL, {{"lower", NULL, 1 / 8.}, {"upper", NULL, 1 / 3.}},            \
        {                                                                                \
            0                                                                            \
        }                                                                                \
    }

/* clang-format off */
static const draw_row rows[] = {
    LAW("rand",              even,        ZERO, ONE),
    LAW("rand_like",         even,        ZERO, ONE),
    LAW("uniform",           even_closed, {"from", NULL, 0}, {"to", NULL, 1}),
    LAW("randn",             normal,      ZERO, ONE),
    LAW("randn_like",        normal,      ZERO, ONE),
    LAW("normal",            normal,      {"mean", NULL, 0}, {"std", NULL, 1}),
    LAW("normal_functional", normal,      {"mean", NULL, 0}, {"std", NULL, 1}),
    LAW("randint",           whole,       {"low", NULL, 0}, {"high", NULL, UNSAID}),
    LAW("randint_like",      whole,       {"low", NULL, 0}, {"high", NULL, UNSAID}),
    LAW("bernoulli",         bernoulli,   {"p", "self", UNSAID}, NOTHING),
    LAW("exponential",       exponential, {"lambd", NULL, 1}, NOTHING),
    LAW("cauchy",            cauchy,      {"median", NULL, 0}, {"sigma", NULL, 1}),
    LAW("log_normal",        log_normal,  {"mean", NULL, 1}, {"std", NULL, 2}),
    LAW("geometric",         geometric,   {"p", NULL, UNSAID}, NOTHING),
    LAW("poisson",           poisson,     {"self", NULL, UNSAID}, NOTHING),
    {"random", ANY_WHOLE, &usc_law_whole, {{"from", NULL, 0}, {"to", NULL, UNSAID}}, {0}},
    {"randperm", PERMUTATION, NULL, {NOTHING}, {0}},
    {"multinomial", CATEGORIES, NULL, {{"replacement", NULL, 0}}, {0}},
    DROP("dropout", 0),
    DROP("native_dropout", 0),
    DROP("_fused_dropout", .p_keeps = true),
    DROP("alpha_dropout", .alpha = true),
    DROP("feature_dropout", .features = true),
    DROP("feature_alpha_dropout", .alpha = true, .features = true),
    DROP("dropout1d", .features = true, .unbatched = 2),
    DROP("dropout2d", .features = true),
    DROP("dropout3d", .features = true, .unbatched = 4),
    SLOPE("rrelu"),
    SLOPE("rrelu_with_noise"),
    SLOPE("rrelu_with_noise_functional"),
};
/* clang-format on */

static const draw_row *row_of(const char *op)
{
    size_t n = strlen(op);
    if (n > 0 && op[n - 1] == '_') n--;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strlen(rows[i].op) == n && strncmp(rows[i].op, op, n) == 0) return &rows[i];
    return NULL;
}

bool usc_draw_known(const char *op)
{
    return row_of(op) != NULL;
}

static usc_status read_parameter(const usc_draw_call *call, const draw_source *from,
                                 usc_parameter *out, usc_error *err)
{
    const usc_draw_argument *a = usc_draw_argument_of(call, from->name);
    if (a == NULL) a = usc_draw_argument_of(call, from->or_else);
    *out = (usc_parameter){from->usual, NULL};
    if (a != NULL) *out = (usc_parameter){a->number, a->tensor};
    if (out->tensor == NULL && isnan(out->number))
        return usc_error_set(err, USC_E_ARG, -1, "%s without its argument %s", call->op,
                             from->name);
    return USC_OK;
}

/* One more than the largest that random_() draws: all whole numbers that a float holds
 * without a gap, all of an integer. */
static double beyond_all(usc_dtype dtype)
{
    const usc_dtype_info *info = usc_dtype_info_of(dtype);
    const int bits = (int)(8 * info->size);
    if (info->kind == USC_KIND_FLOAT) return ldexp(1, info->sig_bits) + 1;
    if (info->kind == USC_KIND_BOOL) return 2;
    return ldexp(1, info->kind == USC_KIND_INT ? bits - 1 : bits);
}

static usc_status read_parameters(const usc_draw_call *call, const draw_row *row,
                                  usc_parameter *p, usc_error *err)
{
    for (int i = 0; i < USC_LAW_PARAMETERS; i++) {
        draw_source from = row->from[i];
        if (row->kind == ANY_WHOLE && isnan(from.usual))
            from.usual = beyond_all(call->outputs[0].first->dtype);
        const usc_status st = read_parameter(call, &from, &p[i], err);
        if (st != USC_OK) return st;
    }
    if (call->complex_parts && row->law == &usc_law_normal)
        p[1].number *= sqrt(0.5); /* of a number: nobody gives a tensor there */
    return USC_OK;
}

static usc_status draw(const usc_draw_call *call, const draw_row *row,
                       const usc_parameter *p, const usc_law_values *values,
                       usc_arena *arena, usc_draws *d, usc_error *err)
{
    int64_t n = 0;
    usc_status st = usc_tensor_numel(values->tensor, &n, err);
    if (st != USC_OK) return st;
    usc_draws_begin(d, arena, n);
    if (d->u == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "draws: no memory");
    usc_draws_shape(d, values->tensor);
    if (row->kind == PERMUTATION)
        return usc_draws_of_permutation(d, values->tensor, values->stream, err);
    if (row->kind != CATEGORIES) return usc_draws_of_law(d, row->law, p, values, err);
    const usc_draw_argument *weights = usc_draw_argument_of(call, "self");
    if (weights == NULL || weights->tensor == NULL)
        return usc_error_set(err, USC_E_ARG, -1, "%s without weights", call->op);
    return usc_draws_of_categories(d, values->tensor, weights->tensor, p[0].number != 0,
                                   values->stream, err);
}

/* Operators with one output, and no values beside what is drawn. */
static usc_status judge_plain(const usc_draw_call *call, const draw_row *row,
                              usc_arena *arena, usc_findings *f, usc_error *err)
{
    const usc_draw_output *o = &call->outputs[0];
    usc_parameter p[USC_LAW_PARAMETERS];
    usc_draws d, again;
    usc_law_values values = {.tensor = o->first, .stream = USC_DRAW_FIRST};
    usc_status st = read_parameters(call, row, p, err);
    if (st == USC_OK) st = draw(call, row, p, &values, arena, &d, err);
    if (st == USC_OK && o->again != NULL) {
        values = (usc_law_values){.tensor = o->again, .stream = USC_DRAW_AGAIN};
        st = draw(call, row, p, &values, arena, &again, err);
    }
    if (st != USC_OK) return st;
    return usc_draws_finding(f, o->path, o->first, &d, o->again != NULL ? &again : NULL,
                             err);
}

static USC_NOINLINE usc_status judge(const usc_draw_call *call, const draw_row *row,
                                     usc_arena *arena, usc_findings *f, usc_error *err)
{
    usc_parameter p[USC_LAW_PARAMETERS];
    if (row->kind != DROPOUT && row->kind != SLOPES)
        return judge_plain(call, row, arena, f, err);
    const usc_status st = read_parameters(call, row, p, err);
    if (st != USC_OK) return st;
    if (row->kind == SLOPES)
        return usc_judge_slopes(call, p[0].number, p[1].number, arena, f, err);
    usc_drop_form form = row->form;
    form.p = form.p_keeps ? 1 - p[0].number : p[0].number;
    return usc_judge_dropout(call, &form, arena, f, err);
}

usc_status usc_draw_judge(const usc_draw_call *call, usc_findings *f, usc_error *err)
{
    const draw_row *row = row_of(call->op);
    if (row == NULL || call->n_outputs < 1)
        return usc_error_set(err, USC_E_ARG, -1, "%s: no law of it is known", call->op);
    usc_arena arena = {.alloc = f->arena.alloc};
    const usc_float_env env = usc_float_env_enter();
    const usc_status st = judge(call, row, &arena, f, err);
    usc_float_env_leave(env);
    usc_arena_free(&arena);
    return st;
}
