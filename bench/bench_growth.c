// SPDX-License-Identifier: Apache-2.0
// What sums of 64 to 65,536 terms really lose in float32, in the orders in which kernels
// add, as the judge measures it: the evidence for limits that grow with the fan-in
// (docs/background/verdict.md). For every K the worst honest order beside each limit, and
// the narrow arithmetic that passes. Usage: bench_growth [--lines] [--seeds N] [--least
// K]
// [--most K]
#include "growth_orders.h"

#include <ulpscope/judge.h>

#include <stdio.h>
#include <stdlib.h>

enum { REPLAYS = 4, LEAST = 64, MOST = 1 << 16, TERMS = 1 << 19, FEWEST_COLUMNS = 32 };

typedef enum op { SUM, MEAN, DOT, SOFTMAX, RSTD, NORM, N_OPS } op;
static const char *const op_names[] = {"sum", "mean", "dot", "softmax", "rstd", "norm"};

typedef enum kind {
    NORMAL,
    UNIFORM,
    MAGNITUDES,
    HEAVY,
    WIDE,
    OFFSET,
    CONSTANT,
    N_KINDS
} kind;
static const char *const kind_names[] = {"normal", "uniform", "|normal|", "heavy",
                                         "wide",   "offset",  "constant"};

/* Inputs and output. */
static const struct form {
    const char *name;
    usc_dtype in, out;
} forms[] = {{"f32", USC_F32, USC_F32},
             {"bf16>f32", USC_BF16, USC_F32},
             {"bf16", USC_BF16, USC_BF16},
             {"f16", USC_F16, USC_F16}};
enum { N_FORMS = sizeof forms / sizeof *forms };

/* ---- numbers ---- */

static double number(kind k, usc_dtype in, double constant)
{
    switch (k) {
    case UNIFORM:
        return unit();
    case MAGNITUDES:
        return fabs(normal());
    case HEAVY:
        return normal() * (unit() < 0.01 ? 200 : 1);
    case WIDE: {
        const double most = in == USC_F16 ? 4 : 30;
        const double power = (in == USC_F16 ? 2 : 8) * normal();
        return normal() * exp2(fmin(fmax(power, -most), most));
    }
    case OFFSET:
        return 100 + normal();
    case CONSTANT:
        return constant;
    case NORMAL:
    case N_KINDS:
        break;
    }
    return normal();
}

/* k n numbers as the dtype holds them. */
static void draw(kind what, usc_dtype in, int64_t k, int64_t n, float *x)
{
    double constant[MOST_COLUMNS], row[MOST_COLUMNS];
    char held[MOST_COLUMNS * sizeof(double)];
    for (int64_t i = 0; i < n; i++)
        constant[i] = 0.5 + unit();
    for (int64_t j = 0; j < k; j++) {
        for (int64_t i = 0; i < n; i++)
            row[i] = number(what, in, constant[i]);
        usc_dtype_narrow(in, row, held, (size_t)n);
        usc_dtype_widen(in, held, row, (size_t)n);
        for (int64_t i = 0; i < n; i++)
            x[j * n + i] = (float)row[i];
    }
}

/* ---- operators ---- */

typedef struct call {
    op op;
    kind kind;
    const struct form *form;
    int64_t k, n;
    float *x, *y, *e, *p, *part, *d; /* inputs and scratch */
    double *moved, *truth, *truths[REPLAYS];
    float *yardstick, *yardsticks[REPLAYS], *device;
    double *lost; /* by one accumulator, from the first term on or from the last */
    int64_t *shuffle;
} call;

static void sums_of(const call *c, const way *w, const float *a, const float *b,
                    float *out)
{
    const size_t size = (size_t)(c->k * c->n);
    for (size_t i = 0; i < size; i++)
        c->p[i] = b == NULL ? a[i] : a[i] * b[i];
    if (w->product) {
        const float factor = factor_of(w->product);
        for (size_t i = 0; i < size; i++)
            c->p[i] = shortened(c->p[i], factor);
    }
    const terms t = {.k = c->k,
                     .n = c->n,
                     .a = a,
                     .b = b,
                     .p = c->p,
                     .shuffle = c->shuffle,
                     .room = c->part};
    add_up(w, &t, out);
}

/* exp of the distances from the largest of a column, off by up to two ulps */
static void exponentials(const call *c, const float *x)
{
    float top[MOST_COLUMNS];
    memcpy(top, x, (size_t)c->n * sizeof *top);
    for (int64_t j = 1; j < c->k; j++)
        for (int64_t i = 0; i < c->n; i++)
            top[i] = fmaxf(top[i], x[j * c->n + i]);
    for (int64_t j = 0; j < c->k; j++)
        for (int64_t i = 0; i < c->n; i++) {
            const double y = exp((double)(x[j * c->n + i] - top[i]));
            c->e[j * c->n + i] = (float)(y * (1 + 0x1p-23 * (2 * unit() - 1)));
        }
}

static void run(const call *c, const way *w, const float *x, const float *y, float *out)
{
    float mean[MOST_COLUMNS];
    const int64_t n = c->n;
    const float k = (float)c->k;
    switch (c->op) {
    case SUM:
    case MEAN:
        sums_of(c, w, x, NULL, out);
        break;
    case DOT:
        sums_of(c, w, x, y, out);
        break;
    case SOFTMAX:
        sums_of(c, w, c->e, NULL, out);
        break;
    case NORM:
        sums_of(c, w, x, x, out);
        break;
    case RSTD:
        sums_of(c, w, x, NULL, mean);
        for (int64_t j = 0; j < c->k; j++)
            for (int64_t i = 0; i < n; i++)
                c->d[j * n + i] = x[j * n + i] - mean[i] / k;
        sums_of(c, w, c->d, c->d, out);
        break;
    case N_OPS:
        break;
    }
    for (int64_t i = 0; i < n; i++) {
        if (c->op == MEAN) out[i] /= k;
        if (c->op == SOFTMAX) out[i] = c->e[i] / out[i];
        if (c->op == NORM) out[i] = sqrtf(out[i]);
        if (c->op == RSTD) out[i] = 1 / sqrtf(out[i] / k + 1e-5f);
    }
}

/* The truth of one column. */
static double exactly(const call *c, const double *x, const double *y, int64_t i)
{
    const int64_t n = c->n, all = c->k * n;
    double sum = 0, top = x[i], mean = 0;
    if (c->op == SOFTMAX)
        for (int64_t j = i; j < all; j += n)
            top = fmax(top, x[j]);
    if (c->op == RSTD)
        for (int64_t j = i; j < all; j += n)
            mean += x[j] / (double)c->k;
    for (int64_t j = i; j < all; j += n) {
        const double far = x[j] - mean;
        sum += c->op == DOT                     ? x[j] * y[j]
               : c->op == SOFTMAX               ? exp(x[j] - top)
               : c->op == RSTD || c->op == NORM ? far * far
                                                : x[j];
    }
    return c->op == MEAN      ? sum / (double)c->k
           : c->op == SOFTMAX ? exp(x[i] - top) / sum
           : c->op == RSTD    ? 1 / sqrt(sum / (double)c->k + 1e-5)
           : c->op == NORM    ? sqrt(sum)
                              : sum;
}

/* ---- the judge ---- */

static usc_tensor view(void *data, usc_dtype dtype, int64_t n)
{
    usc_tensor t;
    need(usc_tensor_make(&t, data, dtype, 1, &n, NULL) == USC_OK, "bad view");
    return t;
}

/* Inputs of replay k, -1 for the inputs themselves; then both results. */
static void replay(call *c, int k, double *truth, float *yardstick)
{
    static const way usual = {"pairwise", PAIRWISE, 0, 0, 0, 0, 0};
    const size_t size = (size_t)(c->k * c->n);
    float *narrow_inputs[2] = {c->x, c->y};
    double *wide[2] = {c->moved, c->moved + size};
    float *held = k < 0 ? NULL : room(2 * size, sizeof *held);
    for (int a = 0; a < 2; a++) {
        const usc_tensor t = view(narrow_inputs[a], USC_F32, (int64_t)size);
        const usc_perturbation how = {.seed = 1, .replay = k, .argument = a};
        if (k < 0)
            usc_dtype_widen(USC_F32, narrow_inputs[a], wide[a], size);
        else
            need(usc_perturb(&t, &how, wide[a], NULL) == USC_OK, "perturb");
        for (size_t i = 0; i < size && held != NULL; i++)
            held[(size_t)a * size + i] = (float)wide[a][i];
    }
    for (int64_t i = 0; i < c->n; i++)
        truth[i] = exactly(c, wide[0], wide[1], i);
    const float *x = held != NULL ? held : c->x, *y = held != NULL ? held + size : c->y;
    if (c->op == SOFTMAX) exponentials(c, x);
    run(c, &usual, x, y, yardstick);
    free(held);
}

static void prepare(call *c)
{
    draw(c->kind, c->form->in, c->k, c->n, c->x);
    draw(c->kind, c->form->in, c->k, c->n, c->y);
    for (int64_t j = 0; j < c->k; j++)
        c->shuffle[j] = j;
    for (int64_t j = c->k - 1; j > 0; j--) {
        const int64_t at = (int64_t)(next_word() % (uint64_t)(j + 1)), s = c->shuffle[j];
        c->shuffle[j] = c->shuffle[at];
        c->shuffle[at] = s;
    }
    for (int k = 0; k < REPLAYS; k++)
        replay(c, k, c->truths[k], c->yardsticks[k]);
    replay(c, -1, c->truth, c->yardstick);
    static const way excused[] = {
        {"first", SERIAL, 0, 0, 0, 0, 0},    {"last", REVERSED, 0, 0, 0, 0, 0},
        {"2 parts", SPLIT, 2, 0, 0, 0, 0},   {"8 parts", SPLIT, 8, 0, 0, 0, 0},
        {"32 parts", SPLIT, 32, 0, 0, 0, 0}, {"units", SERIAL, 0, 0, 8, 0, 0}};
    const bool low = c->op == DOT && c->form->in != USC_F32;
    for (int w = 0; w < (low ? 6 : 5); w++) {
        run(c, &excused[w], c->x, c->y, c->device);
        for (int64_t i = 0; i < c->n; i++) {
            const double lost = fabs((double)c->device[i] - c->truth[i]);
            c->lost[i] = w == 0 ? lost : fmax(lost, c->lost[i]);
        }
    }
}

/* As the excuse `order_of_adding` has it: what one accumulator loses as well is put
 * right. */
static void put_right(const call *c)
{
    for (int64_t i = 0; i < c->n; i++) {
        const double r = c->truth[i], off = fabs((double)c->device[i] - r);
        const int bits = usc_dtype_info_of(c->form->out)->sig_bits;
        if (off <= 2 * c->lost[i] + fabs(r) * ldexp(1, -bits)) c->device[i] = (float)r;
    }
}

static usc_judgement judge(call *c)
{
    double wide[MOST_COLUMNS];
    char held[MOST_COLUMNS * sizeof(float)];
    const int64_t n = c->n;
    usc_dtype_widen(USC_F32, c->device, wide, (size_t)n);
    usc_dtype_narrow(c->form->out, wide, held, (size_t)n);
    const usc_tensor d = view(held, c->form->out, n), r = view(c->truth, USC_F64, n);
    const usc_tensor y = view(c->yardstick, USC_F32, n);
    usc_judge *j = NULL;
    usc_judgement v;
    need(usc_judge_open(&d, &r, &y, NULL, &j, NULL) == USC_OK, "open");
    for (int k = 0; k < REPLAYS; k++) {
        const usc_tensor rk = view(c->truths[k], USC_F64, n);
        const usc_tensor yk = view(c->yardsticks[k], USC_F32, n);
        need(usc_judge_replay(j, &rk, &yk, NULL) == USC_OK, "replay");
    }
    const usc_appeal appeal = {.fan_in = (double)c->k};
    need(usc_judge_appeal(j, &appeal, &v, NULL) == USC_OK, "appeal");
    usc_judge_close(j);
    return v;
}

/* ---- what is counted ---- */

enum { WORST, NEARLY_ALL, TYPICAL, RELATIVE, ONE_SIDED, N_TESTS };
static const char *const test_names[] = {"worst", "nearly all", "typical",
                                         "beside the CPU", "one-sided"};

typedef struct found {
    double most[N_TESTS];
    char who[N_TESTS][80];
    int n_honest, n_accused, n_constant, n_narrow[N_BITS][N_NARROW],
        n_passed[N_BITS][N_NARROW];
} found;

static void note(found *f, const call *c, const way *w, const usc_judgement *v)
{
    const bool one_sided = v->n_mismatch >= 8 && fabs(v->mean_sign) > 0.5;
    const bool many = v->n_mismatch >= 8;
    const double got[N_TESTS] = {v->max, many ? v->q99 : 0, many ? v->mid : 0,
                                 many ? v->rel : 0, one_sided ? v->mid : 0};
    for (int t = 0; t < N_TESTS; t++) {
        if (got[t] <= f->most[t]) continue;
        f->most[t] = got[t];
        (void)snprintf(f->who[t], sizeof f->who[t], "%s, %s of %s, %s", w->name,
                       op_names[c->op], kind_names[c->kind], c->form->name);
    }
}

static bool lines;

static void print_line(const call *c, const way *w, int bits, const usc_judgement *v,
                       const usc_judgement *x)
{
    if (!lines) return;
    printf("%lld\t%s\t%s\t%s\t%s\t%d\t%s\t%lld\t%g\t%g\t%g\t%g\t%g\t%g"
           "\t%s\t%lld\t%g\t%g\t%g\t%g\t%g\t%g\n",
           (long long)c->k, op_names[c->op], kind_names[c->kind], c->form->name, w->name,
           bits, usc_verdict_text(v->verdict), (long long)v->n_mismatch, v->max, v->q99,
           v->mid, v->rel, v->z, v->mean_sign, usc_verdict_text(x->verdict),
           (long long)x->n_mismatch, x->max, x->q99, x->mid, x->rel, x->z, x->mean_sign);
}

/* `passes`: with the excuse. */
static usc_judgement measure(call *c, const way *w, int bits, bool *passes)
{
    run(c, w, c->x, c->y, c->device);
    const usc_judgement v = judge(c);
    put_right(c);
    const usc_judgement x = judge(c);
    *passes = v.verdict == USC_VERDICT_PASS || x.verdict == USC_VERDICT_PASS;
    print_line(c, w, bits, &v, &x);
    return v;
}

static void count(call *c, found *f)
{
    const bool products = c->op == DOT || c->op == RSTD || c->op == NORM;
    for (int i = 0; i < N_HONEST; i++) {
        const way *w = &honest[i];
        if (w->fused && !products) continue;
        if (w->at_once > 0 && (c->op != DOT || c->form->in == USC_F32)) continue;
        bool passes;
        const usc_judgement v = measure(c, w, 24, &passes);
        /* The rest an excuse computes: terms that vanish beneath the sum, what is cut
         * off. */
        if (c->kind < WIDE && w->at_once == 0) note(f, c, w, &v);
        f->n_honest++;
        f->n_accused += !passes;
        f->n_constant += !passes && c->kind == CONSTANT;
    }
    if (c->kind > MAGNITUDES || c->form->out != USC_F32) return;
    for (int b = 0; b < N_BITS; b++)
        for (int i = 0; i < N_NARROW; i++) {
            way w = narrow[i];
            if (w.accumulator) w.accumulator = bits_tried[b];
            if (w.product) w.product = bits_tried[b];
            bool passes;
            (void)measure(c, &w, bits_tried[b], &passes);
            f->n_narrow[b][i]++;
            f->n_passed[b][i] += passes;
        }
}

static call make_call(int64_t k)
{
    int64_t n = TERMS / k;
    n = n < FEWEST_COLUMNS ? FEWEST_COLUMNS : n > MOST_COLUMNS ? MOST_COLUMNS : n;
    const size_t size = (size_t)(k * n), columns = (size_t)n;
    call c = {.k = k, .n = n};
    float **floats[] = {&c.x, &c.y, &c.e, &c.p, &c.part, &c.d};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        *floats[i] = room(size, sizeof(float));
    c.moved = room(2 * size, sizeof(double));
    c.truth = room(columns, sizeof(double));
    c.lost = room(columns, sizeof(double));
    c.yardstick = room(columns, sizeof(float));
    c.device = room(columns, sizeof(float));
    for (int r = 0; r < REPLAYS; r++) {
        c.truths[r] = room(columns, sizeof(double));
        c.yardsticks[r] = room(columns, sizeof(float));
    }
    c.shuffle = room((size_t)k, sizeof(int64_t));
    return c;
}

static void free_call(call *c)
{
    float *const floats[] = {c->x,    c->y, c->e,         c->p,
                             c->part, c->d, c->yardstick, c->device};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        free(floats[i]);
    for (int r = 0; r < REPLAYS; r++) {
        free(c->truths[r]);
        free(c->yardsticks[r]);
    }
    free(c->moved);
    free(c->truth);
    free(c->lost);
    free(c->shuffle);
}

static void print_found(int64_t k, const found *f)
{
    if (lines) return;
    printf("\nK = %lld: %d of %d honest outputs accused, %d of them sums of one value\n",
           (long long)k, f->n_accused, f->n_honest, f->n_constant);
    for (int t = 0; t < N_TESTS; t++)
        printf("  %-15s %8.3g  %s\n", test_names[t], f->most[t], f->who[t]);
    for (int i = 0; i < N_NARROW; i++) {
        printf("  %-24s passes", narrow[i].name);
        for (int b = 0; b < N_BITS; b++)
            printf("  %d bits %3.0f %%", bits_tried[b],
                   100.0 * f->n_passed[b][i] / f->n_narrow[b][i]);
        printf("\n");
    }
    (void)fflush(stdout);
}

static void measure_all(int64_t k, int seeds)
{
    call c = make_call(k);
    found f = {0};
    for (int s = 0; s < seeds; s++)
        for (int o = 0; o < N_OPS; o++)
            for (int d = 0; d < N_KINDS; d++)
                for (int t = 0; t < N_FORMS; t++) {
                    c.op = (op)o;
                    c.kind = (kind)d;
                    c.form = &forms[t];
                    state = (uint64_t)(((s * N_OPS + o) * N_KINDS + d) * N_FORMS + t)
                            << 32;
                    prepare(&c);
                    count(&c, &f);
                }
    print_found(k, &f);
    free_call(&c);
}

int main(int argc, char **argv)
{
    long seeds = 1, least = LEAST, most = MOST;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--lines") == 0)
            lines = true;
        else if (strcmp(argv[i], "--seeds") == 0)
            seeds = strtol(value, NULL, 10), i++;
        else if (strcmp(argv[i], "--least") == 0)
            least = strtol(value, NULL, 10), i++;
        else if (strcmp(argv[i], "--most") == 0)
            most = strtol(value, NULL, 10), i++;
        else
            need(false,
                 "usage: bench_growth [--lines] [--seeds N] [--least K] [--most K]");
    }
    need(seeds >= 1 && least >= LEAST && most <= MOST, "K is 64 to 65536");
    for (long k = LEAST; k <= MOST; k *= 4)
        if (k >= least && k <= most) measure_all(k, (int)seeds);
    return 0;
}
