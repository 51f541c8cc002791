// SPDX-License-Identifier: Apache-2.0
// Which arithmetic was chosen for which operators.
#include <ulpscope_sim/numerics.h>

#include "base/number.h"
#include "nearest.h"

#include <ulpscope/x/pattern.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MOST 32

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usc_sim_numerics chosen[MOST];
static size_t n_chosen;
static atomic_bool any;
static int64_t next_id = 1;

static const struct {
    const char *name, *chooses, *source;
} sets[] = {
    {"like:tf32-tensor-core", "factors=tf32 accumulate=float32 order=blocks:8",
     "NVIDIA, CUDA C++ Programming Guide, Alternate Floating Point: factors of 10 bits, "
     "sums in float32; m16n8k8"},
    {"like:bf16-tensor-core", "factors=bfloat16 accumulate=float32 order=blocks:16",
     "NVIDIA, PTX ISA, mma: factors of bfloat16, sums in float32; m16n8k16"},
    {"like:simt", "accumulate=float32 order=split-k:4 fma=1",
     "NVIDIA, CUTLASS, Efficient GEMM: FFMA in float32, parallelized reductions"},
    {"like:warp-reduce", "accumulate=float32 order=lanes:32",
     "NVIDIA, Faster Parallel Reductions on Kepler: a lane each, then a tree"},
    {"like:atomics", "accumulate=float32 order=random",
     "NVIDIA, CUDA C++ Programming Guide, Atomic Functions: no order is promised"},
    {"like:flash-attention", "accumulate=float32 tile=64",
     "Dao et al., FlashAttention (2022), algorithm 1: tiles of keys, softmax rescaled"},
    {"like:welford-norm", "accumulate=float32 variance=welford",
     "Welford (1962), Technometrics 4(3); PyTorch's layer_norm_kernel.cu"},
    {"like:apex-norm", "accumulate=float32 variance=chunks order=lanes:32",
     "NVIDIA Apex, csrc/layer_norm_cuda_kernel.cu: Welford a lane, then Chan's merge"},
    {"like:online-softmax", "accumulate=float32 online=1",
     "Milakov, Gimelshein, Online normalizer calculation for softmax (2018)"},
    {"like:moments-norm", "accumulate=float32 variance=moments",
     "Ba et al., LayerNorm in one pass; as MLX issue 2238 tells of it"},
    {"like:fp16-accumulate", "factors=float16 accumulate=float16 order=blocks:16",
     "NVIDIA, PTX ISA, mma with .f16 accumulators"},
};

bool usc_sim_numerics_row(size_t i, const char **name, const char **chooses,
                          const char **source)
{
    if (i >= sizeof sets / sizeof sets[0]) return false;
    *name = sets[i].name;
    *chooses = sets[i].chooses;
    *source = sets[i].source;
    return true;
}

usc_status usc_sim_numerics_begin(const char *pattern, usc_sim_numerics *out,
                                  usc_error *err)
{
    *out = (usc_sim_numerics){.accumulate = USC_DTYPE_NONE, .scale = USC_DTYPE_NONE};
    if (strlen(pattern) >= sizeof out->pattern)
        return usc_error_set(err, USC_E_ARG, -1, "sim: a pattern of %zu characters",
                             strlen(pattern));
    const usc_status st = usc_pattern_check(pattern, err);
    if (st == USC_OK) (void)snprintf(out->pattern, sizeof out->pattern, "%s", pattern);
    return st;
}

/* ---- words ------------------------------------------------------------------------ */

static usc_status refuse(const char *key, const char *value, const char *known,
                         usc_error *err)
{
    return usc_error_set(err, USC_E_ARG, -1,
                         "sim: numerics: there is no %s '%.60s'; there are %s", key,
                         value, known);
}

static usc_status choose_dtype(usc_dtype *to, const char *key, const char *value,
                               usc_error *err)
{
    const usc_dtype dtype = usc_dtype_by_name(value);
    if (dtype != USC_F64 && dtype != USC_F32 && dtype != USC_F16 && dtype != USC_BF16)
        return refuse(key, value, "float64, float32, float16, bfloat16", err);
    *to = dtype;
    return USC_OK;
}

static usc_status choose_variance(usc_sim_numerics *n, const char *value, usc_error *err)
{
    static const char *names[] = {"two-pass", "welford", "chunks", "moments", "unbiased"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(value, names[i]) == 0) {
            n->variance = (usc_sim_variance)i;
            return USC_OK;
        }
    return refuse("variance", value, "two-pass, welford, chunks, moments, unbiased", err);
}

static usc_status choose_epsilon(usc_sim_numerics *n, const char *value, usc_error *err)
{
    n->epsilon_outside = strcmp(value, "outside") == 0;
    return n->epsilon_outside || strcmp(value, "inside") == 0
               ? USC_OK
               : refuse("epsilon", value, "inside, outside", err);
}

static usc_status choose_count(int64_t *to, const char *key, const char *value, int most,
                               usc_error *err)
{
    char *end, known[32];
    const double count = usc_parse_number(value, &end);
    (void)snprintf(known, sizeof known, "0 (none) to %d", most);
    if (end == value || *end != '\0' || !(count >= 0 && count <= most) ||
        (double)(int64_t)count < count)
        return refuse(key, value, known, err);
    *to = (int64_t)count;
    return USC_OK;
}

static usc_status choose_order(usc_sim_numerics *n, const char *value, usc_error *err)
{
    static const struct {
        const char *name;
        usc_sim_order order;
        bool needs_parts;
    } orders[] = {
        {"serial", USC_SIM_SERIAL, false}, {"pairwise", USC_SIM_PAIRWISE, false},
        {"blocks:", USC_SIM_BLOCKS, true}, {"split-k:", USC_SIM_SPLIT_K, true},
        {"lanes:", USC_SIM_LANES, true},   {"random", USC_SIM_RANDOM, false},
        {"random:", USC_SIM_RANDOM, true},
    };
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        const size_t length = strlen(orders[i].name);
        char *end = NULL;
        const bool same = strncmp(value, orders[i].name, length) == 0;
        const double parts =
            same && orders[i].needs_parts ? usc_parse_number(value + length, &end) : 1;
        if (!same || (orders[i].needs_parts ? end == value + length || *end != '\0'
                                            : value[length] != '\0'))
            continue;
        if (!(parts >= 1 && parts <= 1024) || (double)(int64_t)parts < parts) continue;
        n->order = orders[i].order;
        n->n_parts = (int64_t)parts;
        n->seed = (uint64_t)parts;
        return USC_OK;
    }
    return refuse(
        "order", value,
        "serial, pairwise, blocks:N, split-k:N, lanes:N, random[:SEED], N of 1 to "
        "1024",
        err);
}

static usc_status choose_factors(usc_sim_numerics *n, const char *value, usc_error *err)
{
    static const struct {
        const char *name;
        int bits, emin;
    } formats[] = {
        {"own", 0, 0}, {"tf32", 11, -126}, {"bfloat16", 8, -126}, {"float16", 11, -14}};
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(value, formats[i].name) == 0) {
            n->factor_bits = formats[i].bits;
            n->factor_emin = formats[i].emin;
            return USC_OK;
        }
    return refuse("factors", value, "own, tf32, bfloat16, float16", err);
}

static usc_status choose_switch(bool *on, const char *key, const char *value,
                                usc_error *err)
{
    if (strcmp(value, "0") != 0 && strcmp(value, "1") != 0)
        return refuse(key, value, "0, 1", err);
    *on = value[0] == '1';
    return USC_OK;
}

static usc_status choose_set(usc_sim_numerics *n, const char *value, usc_error *err)
{
    char known[512] = "";
    for (size_t i = 0, at = 0; i < sizeof sets / sizeof sets[0]; i++) {
        const char *name = sets[i].name + strlen("like:");
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i > 0 ? ", " : "",
                               name);
        if (strcmp(value, name) != 0) continue;
        char copy[128], *rest = copy;
        (void)snprintf(copy, sizeof copy, "%s", sets[i].chooses);
        usc_status st = USC_OK;
        for (char *part; st == USC_OK && (part = strsep(&rest, " ")) != NULL;) {
            char *equals = strchr(part, '=');
            *equals = '\0';
            st = usc_sim_numerics_choose(n, part, equals + 1, err);
        }
        return st;
    }
    return refuse("set", value, known, err);
}

static const char *choice_name(const void *ctx, size_t i)
{
    static const char *names[] = {"accumulate", "order",    "factors", "fma",
                                  "online",     "variance", "epsilon", "scale",
                                  "tile",       "degree",   "like"};
    (void)ctx;
    return i < sizeof names / sizeof names[0] ? names[i] : NULL;
}

usc_status usc_sim_numerics_choose(usc_sim_numerics *n, const char *key,
                                   const char *value, usc_error *err)
{
    if (strcmp(key, "accumulate") == 0)
        return choose_dtype(&n->accumulate, key, value, err);
    if (strcmp(key, "scale") == 0) return choose_dtype(&n->scale, key, value, err);
    if (strcmp(key, "variance") == 0) return choose_variance(n, value, err);
    if (strcmp(key, "epsilon") == 0) return choose_epsilon(n, value, err);
    if (strcmp(key, "tile") == 0) return choose_count(&n->tile, key, value, 4096, err);
    if (strcmp(key, "degree") == 0) return choose_count(&n->degree, key, value, 20, err);
    if (strcmp(key, "order") == 0) return choose_order(n, value, err);
    if (strcmp(key, "factors") == 0) return choose_factors(n, value, err);
    if (strcmp(key, "fma") == 0) return choose_switch(&n->fma, key, value, err);
    if (strcmp(key, "online") == 0) return choose_switch(&n->online, key, value, err);
    if (strcmp(key, "like") == 0) return choose_set(n, value, err);
    return usc_error_set(
        err, USC_E_ARG, -1,
        "sim: numerics: there is no choice '%.60s', the nearest is '%s'; "
        "there are accumulate, order, factors, fma, online, variance, "
        "epsilon, scale, tile, degree, like",
        key, sim_nearest(key, strlen(key), choice_name, NULL));
}

bool usc_sim_numerics_break(usc_sim_numerics *n, const usc_sim_fault *fault)
{
    switch ((int)fault->kind) {
    case USC_SIM_FAULT_ACCUMULATE_BF16:
        n->accumulate = USC_BF16;
        return true;
    case USC_SIM_FAULT_ACCUMULATE_FP16:
        n->accumulate = USC_F16;
        return true;
    case USC_SIM_FAULT_TERM_MISSING:
    case USC_SIM_FAULT_TERM_TWICE:
        n->lacks_term = fault->kind == USC_SIM_FAULT_TERM_MISSING;
        n->has_twice = !n->lacks_term;
        n->term = (int64_t)fault->params[0];
        return true;
    case USC_SIM_FAULT_REST_MISSING:
        n->group = (int64_t)fault->params[0];
        return true;
    case USC_SIM_FAULT_EPSILON_OUTSIDE:
        n->epsilon_outside = true;
        return true;
    case USC_SIM_FAULT_VARIANCE_UNBIASED:
        n->variance = USC_SIM_UNBIASED;
        return true;
    case USC_SIM_FAULT_VARIANCE_MOMENTS:
        n->variance = USC_SIM_MOMENTS;
        return true;
    case USC_SIM_FAULT_SCALE_BF16:
        n->scale = USC_BF16;
        return true;
    case USC_SIM_FAULT_CAUSAL_LEAK:
        n->causal_rows = (int64_t)fault->params[0];
        return true;
    default:
        return false;
    }
}

/* ---- the table ---------------------------------------------------------------------- */

usc_status usc_sim_numerics_add(usc_sim_numerics *n, usc_error *err)
{
    pthread_mutex_lock(&lock);
    const bool room = n_chosen < MOST;
    if (room) {
        n->id = next_id++;
        chosen[n_chosen++] = *n;
    }
    atomic_store(&any, n_chosen > 0);
    pthread_mutex_unlock(&lock);
    return room
               ? USC_OK
               : usc_error_set(err, USC_E_ARG, -1,
                               "sim: numerics: %d are chosen already, the most at a time",
                               MOST);
}

bool usc_sim_numerics_remove(int64_t id)
{
    pthread_mutex_lock(&lock);
    size_t i = 0;
    while (i < n_chosen && chosen[i].id != id)
        i++;
    const bool found = i < n_chosen;
    if (found) {
        memmove(&chosen[i], &chosen[i + 1], (n_chosen - i - 1) * sizeof *chosen);
        n_chosen--;
    }
    atomic_store(&any, n_chosen > 0);
    pthread_mutex_unlock(&lock);
    return found;
}

bool usc_sim_numerics_chosen(void)
{
    return atomic_load_explicit(&any, memory_order_relaxed);
}

bool usc_sim_numerics_of(const char *op, usc_sim_numerics *out)
{
    bool found = false;
    if (!usc_sim_numerics_chosen()) return false;
    pthread_mutex_lock(&lock);
    for (size_t i = n_chosen; i > 0 && !found; i--) {
        usc_sim_numerics *n = &chosen[i - 1];
        found = usc_pattern_match(n->pattern, op);
        if (!found) continue;
        *out = *n;
        n->seed += n->order == USC_SIM_RANDOM ? 0x9e3779b97f4a7c15u : 0;
    }
    pthread_mutex_unlock(&lock);
    return found;
}
