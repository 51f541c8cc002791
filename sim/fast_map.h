// SPDX-License-Identifier: Apache-2.0
// Functions of one number, a block of FAST_BLOCK at a time, bit by bit what kernels_map.c
// defines; part of fast_lanes.h. Numbers of a block between two steps lie in the nearest
// cache; `doubt` tells that one of them is to be asked one by one.

#define EACH_LANE(j) for (size_t j = 0; j < FAST_BLOCK; j += LANES)
#define EACH_WIDE(j) for (size_t j = 0; j < FAST_BLOCK; j += WIDE)

static inline wide_t widened(const float *at)
{
    half_t x;
    memcpy(&x, at, sizeof x);
    return WIDEN(x);
}

static inline half_t narrowed(wide_t x)
{
    return USC_CONVERT_VECTOR(x, half_t);
}

/* x rounded to float32, as each step is. */
static inline wide_t rounded(wide_t x)
{
    return WIDEN(narrowed(x));
}

static inline void store_half(float *at, half_t x)
{
    memcpy(at, &x, sizeof x);
}

static inline mask_t as_mask(lanes_t x)
{
    mask_t m;
    memcpy(&m, &x, sizeof m);
    return m;
}

static inline lanes_t as_lanes(mask_t m)
{
    lanes_t x;
    memcpy(&x, &m, sizeof x);
    return x;
}

static inline lanes_t choose(mask_t which, lanes_t yes, lanes_t no)
{
    return as_lanes((as_mask(yes) & which) | (as_mask(no) & ~which));
}

static inline lanes_t magnitude(lanes_t x)
{
    return as_lanes(as_mask(x) & INT32_MAX);
}

static inline lanes_t with_sign(lanes_t x, lanes_t of)
{
    return as_lanes((as_mask(x) & INT32_MAX) | (as_mask(of) & INT32_MIN));
}

/* ---- to the last bit ------------------------------------------------------------------- */

static void exact_exponentials(const float *x, float *out, doubt_t *doubt)
{
    EACH_WIDE(j)
    {
        store_half(out + j, exp_rounded(widened(x + j), doubt));
    }
}

/* e^y - 1 of 0 <= y <= 40, off by less than 2^-44 of itself: 2^k (e^r - 1) + (2^k - 1). */
static inline wide_t exp_less_one(wide_t y)
{
    wide_t r;
    const bits_t k = exp_parts(y, &r);
    const wide_t r2 = r * r, r4 = r2 * r2;
#define TWO(low, high) MAD(wide_all(high), r, wide_all(low))
    const wide_t first = MAD(TWO(1. / 24, 1. / 120), r2, TWO(1. / 2, 1. / 6)),
                 second = MAD(TWO(1. / 40320, 1. / 362880), r2, TWO(1. / 720, 1. / 5040)),
                 third = TWO(1. / 3628800, 1. / 39916800);
#undef TWO
    const wide_t rest = MAD(MAD(third, r4, second), r4, first);
    const wide_t power = as_wide(as_bits(wide_all(1)) + k);
    return MAD(power, MAD(rest, r2, r), power - wide_all(1));
}

static void exact_tangents(const float *x, float *out, doubt_t *doubt)
{
    EACH_WIDE(j)
    {
        const wide_t v = widened(x + j);
        const bits_t sign = as_bits(v) & INT64_MIN;
        wide_t a = as_wide(as_bits(v) ^ sign);
        a = wide_choose(a > wide_all(20), wide_all(20), a); /* 1 in float32 */
        const wide_t less = exp_less_one(a + a), t = less / (less + wide_all(2));
        no_number(v, doubt);
        store_half(out + j, rounded_near(as_wide(as_bits(t) | sign), doubt));
    }
}

/* The error function, by polynomials of least greatest error (Chebyshev) of its quotient by
 * x in x^2 up to 1, off by less than 2^-51 of it, and of itself in (x - 2.5) / 1.5 from 1 to
 * 4, off by less than 2^-46; it is 1 in float32 from there. */
static inline wide_t error_function(wide_t a)
{
    static const double near[] = {
        0x1.20dd750429b6bp+0,   -0x1.812746b037352p-2,  0x1.ce2f21a000d30p-4,
        -0x1.b82ce3026aae0p-6,  0x1.565bcb082cca2p-8,   -0x1.c02d67e37081ep-11,
        0x1.f99c295886f05p-14,  -0x1.f4684782919e8p-17, 0x1.b5d3ea9fd0b5ap-20,
        -0x1.462a758d4591dp-23, 0x1.43f6d0dee7032p-27,
    };
    static const double far[] = {
        0x1.ffcaa8f4c9c20p-1,   0x1.ac44a297a1a0dp-9,   -0x1.9180586f184afp-7,
        0x1.cdb9ff4b1e8aap-6,   -0x1.65964eb6b3df8p-5,  0x1.7c8c499b9123dp-5,
        -0x1.0521fa5b264fbp-5,  0x1.2fae1f8da8514p-7,   0x1.b5d3a9897c862p-8,
        -0x1.3b4982976e12fp-7,  0x1.29cb869c9b3d1p-8,   0x1.d1db9a918cb32p-12,
        -0x1.decdc771f9262p-10, 0x1.dec3b7be417f8p-11,  0x1.b507d7193e9c0p-15,
        -0x1.26fca63c55e85p-12, 0x1.f3dc8e8546775p-14,  0x1.37a503d3c1c2cp-16,
        -0x1.34aa9cb8708b3p-15, 0x1.2ece62ac2a803p-17,  0x1.57e43a5452293p-18,
        -0x1.7880d7393f7dbp-19, -0x1.3a459ec6706efp-22, 0x1.4291df80b3e82p-22,
    };
    const wide_t square = a * a;
    wide_t low = wide_all(near[10]);
    for (size_t i = 10; i-- > 0;)
        low = MAD(low, square, wide_all(near[i]));
    low = low * a;
    const bits_t is_far = a > wide_all(1);
    if (!any(is_far)) return low;
    a = wide_choose(a > wide_all(4), wide_all(4), a);
    const wide_t u = (a - wide_all(2.5)) * wide_all(1 / 1.5), u2 = u * u;
    wide_t even = wide_all(far[22]), odd = wide_all(far[23]);
    for (size_t i = 22; i > 0; i -= 2) {
        even = MAD(even, u2, wide_all(far[i - 2]));
        odd = MAD(odd, u2, wide_all(far[i - 1]));
    }
    return wide_choose(is_far, MAD(odd, u, even), low);
}

static void exact_errors(const float *x, float *out, doubt_t *doubt)
{
    EACH_WIDE(j)
    {
        const wide_t v = widened(x + j);
        const bits_t sign = as_bits(v) & INT64_MIN;
        const wide_t e = error_function(as_wide(as_bits(v) ^ sign));
        no_number(v, doubt);
        store_half(out + j, rounded_near(as_wide(as_bits(e) | sign), doubt));
    }
}

/* ---- by a chosen polynomial -------------------------------------------------------------- */

/* a * by + more, as way.h's along() has it; a product that is not rounded is exact in
 * float64. */
static void along(const fast_map *m, const float *a, const float *by, const float *more,
                  float *out)
{
    if (m->fma) {
        EACH_WIDE(j)
        {
            const wide_t product = widened(a + j) * widened(by + j);
            store_half(out + j, narrowed(product + widened(more + j)));
        }
        return;
    }
    EACH_LANE(j)
    {
        store(out + j, load(a + j) * load(by + j) + load(more + j));
    }
}

/* The sum of terms[i] x^i, i < n. */
static void polynomial(const fast_map *m, const float *x, const float *terms, size_t n,
                       float *out)
{
    if (m->fma) {
        EACH_WIDE(j)
        {
            const wide_t by = widened(x + j);
            wide_t sum = wide_all((double)terms[n - 1]);
            for (size_t i = n - 1; i-- > 0;)
                sum = rounded(sum * by + wide_all((double)terms[i]));
            store_half(out + j, narrowed(sum));
        }
        return;
    }
    EACH_LANE(j)
    {
        const lanes_t by = load(x + j);
        lanes_t sum = all(terms[n - 1]);
        for (size_t i = n - 1; i-- > 0;)
            sum = sum * by + all(terms[i]);
        store(out + j, sum);
    }
}

static void exponentials_by_terms(const fast_map *m, const float *x, float *out,
                                  doubt_t *doubt)
{
    float rest[FAST_BLOCK];
    int64_t power[FAST_BLOCK];
    EACH_WIDE(j)
    {
        const wide_t v = widened(x + j), magic = wide_all(0x1.8p52);
        no_number(v, doubt);
        wide_t y = wide_choose(v > wide_all(200), wide_all(200), v); /* inf, and 0 */
        y = wide_choose(v < wide_all(-200), wide_all(-200), y);
        const wide_t shifted = y * wide_all(0x1.71547652b82fep+0) + magic,
                     k = shifted - magic;
        const wide_t r = rounded(y - k * wide_all(0x1.62e42p-1));
        store_half(rest + j, narrowed(r - k * wide_all(0x1.fdf473de6af28p-22)));
        const bits_t up = as_bits(shifted) << 52;
        memcpy(power + j, &up, sizeof up);
    }
    polynomial(m, rest, m->terms, m->n_terms, rest);
    EACH_WIDE(j)
    {
        bits_t up;
        memcpy(&up, power + j, sizeof up);
        store_half(out + j, narrowed(as_wide(as_bits(widened(rest + j)) + up)));
    }
}

static void tangents_by_terms(const fast_map *m, const float *x, float *out,
                              doubt_t *doubt)
{
    float squares[FAST_BLOCK], series[FAST_BLOCK], twice[FAST_BLOCK];
    EACH_LANE(j)
    {
        const lanes_t v = load(x + j), a = magnitude(v);
        store(squares + j, v * v);
        store(twice + j, all(2) * choose(a > all(40), all(40), a)); /* 1 from there */
    }
    exponentials_by_terms(m, twice, twice, doubt);
    polynomial(m, squares, m->tangent, FAST_TANGENT_TERMS, series);
    EACH_LANE(j)
    {
        store(series + j, load(series + j) * load(squares + j));
    }
    along(m, series, x, x, series);
    EACH_LANE(j)
    {
        const lanes_t v = load(x + j);
        const lanes_t t = all(1) - all(2) / (load(twice + j) + all(1));
        /* from the first float32 that is 0.35 or more */
        store(out + j,
              choose(magnitude(v) > all(0.35F), with_sign(t, v), load(series + j)));
    }
}

/* ---- functions ---------------------------------------------------------------------------- */

static void exponential_block(const fast_map *m, const float *x, float *out,
                              doubt_t *doubt)
{
    if (m->n_terms > 0)
        exponentials_by_terms(m, x, out, doubt);
    else
        exact_exponentials(x, out, doubt);
}

static void tangent_block(const fast_map *m, const float *x, float *out, doubt_t *doubt)
{
    if (m->n_terms > 0)
        tangents_by_terms(m, x, out, doubt);
    else
        exact_tangents(x, out, doubt);
}

static void sigmoid_block(const fast_map *m, const float *x, float *out, doubt_t *doubt)
{
    float room[FAST_BLOCK];
    EACH_LANE(j)
    {
        store(room + j, -load(x + j));
    }
    exponential_block(m, room, room, doubt);
    const bool by_self = m->function == USC_SIM_SILU;
    EACH_LANE(j)
    {
        const lanes_t y = all(1) / (all(1) + load(room + j));
        store(out + j, by_self ? load(x + j) * y : y);
    }
}

static void gelu_block(const fast_map *m, const float *x, float *out, doubt_t *doubt)
{
    float room[FAST_BLOCK];
    if (m->function == USC_SIM_GELU) {
        EACH_LANE(j)
        {
            store(room + j, load(x + j) * all((float)M_SQRT1_2));
        }
        exact_errors(room, room, doubt);
    } else {
        float terms[FAST_BLOCK];
        EACH_LANE(j)
        {
            const lanes_t v = load(x + j);
            store(room + j, v * v * v);
            store(terms + j, all((float)0.044715));
        }
        along(m, terms, room, x, room);
        EACH_LANE(j)
        {
            store(room + j, all((float)(M_2_SQRTPI * M_SQRT1_2)) * load(room + j));
        }
        tangent_block(m, room, room, doubt);
    }
    EACH_LANE(j)
    {
        store(out + j, all(0.5F) * load(x + j) * (all(1) + load(room + j)));
    }
}

static bool map_block(const fast_map *m, const float *x, float *out)
{
    doubt_t doubt = {0};
    switch (m->function) {
    case USC_SIM_EXP:
        exponential_block(m, x, out, &doubt);
        break;
    case USC_SIM_TANH:
        tangent_block(m, x, out, &doubt);
        break;
    case USC_SIM_SIGMOID:
    case USC_SIM_SILU:
        sigmoid_block(m, x, out, &doubt);
        break;
    case USC_SIM_GELU:
    case USC_SIM_GELU_TANH:
        gelu_block(m, x, out, &doubt);
        break;
    }
    return !has_doubt(&doubt);
}
