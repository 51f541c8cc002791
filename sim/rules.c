// SPDX-License-Identifier: Apache-2.0
// Rules about operators, as tables.
#include <ulpscope_sim/foretold.h>
#include <ulpscope_sim/rules.h>

#include <stdatomic.h>
#include <string.h>

/* ---- tensors of two places -------------------------------------------------------- */

typedef enum host_rule {
    NUMBER, /* of no dimension */
    ANY,
} host_rule;

/* What CUDA's kernels take of the host: `device_check: NoCheck` in torch's
 * native_functions.yaml, of operators with two tensors and more and a kernel of their own.
 * No other operator of torch takes any. */
static const struct host_row {
    const char *op;
    host_rule rule;
    const char *argument; /* NULL: each that is not written */
} host_rows[] = {
    {"__ilshift__", NUMBER, NULL},
    {"__irshift__", NUMBER, NULL},
    {"__lshift__", NUMBER, NULL},
    {"__rshift__", NUMBER, NULL},
    {"_foreach_copy", ANY, NULL},
    {"_fused_adagrad", NUMBER, "lr"},
    {"_fused_adam", NUMBER, "lr"},
    {"_fused_adamw", NUMBER, "lr"},
    {"_fused_sgd", NUMBER, "lr"},
    {"_index_put_impl", ANY, "indices"},
    {"_nested_from_padded", ANY, "cpu_nested_shape_example"},
    {"_nested_view_from_buffer", ANY, NULL},
    {"_nested_view_from_buffer_copy", ANY, NULL},
    {"add", NUMBER, NULL},
    {"addcdiv", NUMBER, NULL},
    {"addcmul", NUMBER, NULL},
    {"atan2", NUMBER, NULL},
    {"bernoulli", NUMBER, NULL},
    {"binary_cross_entropy", NUMBER, NULL},
    {"binomial", NUMBER, NULL},
    {"bitwise_and", NUMBER, NULL},
    {"bitwise_left_shift", NUMBER, NULL},
    {"bitwise_or", NUMBER, NULL},
    {"bitwise_right_shift", NUMBER, NULL},
    {"bitwise_xor", NUMBER, NULL},
    {"clamp", NUMBER, NULL},
    {"clamp_max", NUMBER, NULL},
    {"clamp_min", NUMBER, NULL},
    {"copy", ANY, NULL},
    {"copysign", NUMBER, NULL},
    {"div", NUMBER, NULL},
    {"eq", NUMBER, NULL},
    {"fill", NUMBER, "value"},
    {"floor_divide", NUMBER, NULL},
    {"fmax", NUMBER, NULL},
    {"fmin", NUMBER, NULL},
    {"fmod", NUMBER, NULL},
    {"ge", NUMBER, NULL},
    {"gt", NUMBER, NULL},
    {"heaviside", NUMBER, NULL},
    {"hypot", NUMBER, NULL},
    {"index", ANY, "indices"},
    {"index_fill", NUMBER, "value"},
    {"is_same_size", ANY, NULL},
    {"is_set_to", ANY, NULL},
    {"le", NUMBER, NULL},
    {"lerp", NUMBER, NULL},
    {"logical_and", NUMBER, NULL},
    {"logical_or", NUMBER, NULL},
    {"logical_xor", NUMBER, NULL},
    {"lt", NUMBER, NULL},
    {"masked_fill", NUMBER, "value"},
    {"maximum", NUMBER, NULL},
    {"minimum", NUMBER, NULL},
    {"mse_loss", NUMBER, NULL},
    {"mul", NUMBER, NULL},
    {"ne", NUMBER, NULL},
    {"pow", NUMBER, NULL},
    {"remainder", NUMBER, NULL},
    {"rsub", NUMBER, NULL},
    {"set", ANY, NULL},
    {"smooth_l1_loss", NUMBER, NULL},
    {"special_chebyshev_polynomial_t", NUMBER, NULL},
    {"special_chebyshev_polynomial_u", NUMBER, NULL},
    {"special_chebyshev_polynomial_v", NUMBER, NULL},
    {"special_chebyshev_polynomial_w", NUMBER, NULL},
    {"special_hermite_polynomial_h", NUMBER, NULL},
    {"special_hermite_polynomial_he", NUMBER, NULL},
    {"special_laguerre_polynomial_l", NUMBER, NULL},
    {"special_legendre_polynomial_p", NUMBER, NULL},
    {"special_shifted_chebyshev_polynomial_t", NUMBER, NULL},
    {"special_shifted_chebyshev_polynomial_u", NUMBER, NULL},
    {"special_shifted_chebyshev_polynomial_v", NUMBER, NULL},
    {"special_shifted_chebyshev_polynomial_w", NUMBER, NULL},
    {"special_xlog1py", NUMBER, NULL},
    {"special_zeta", NUMBER, NULL},
    {"sub", NUMBER, NULL},
    {"where", NUMBER, NULL},
    {"xlogy", NUMBER, NULL},
};

/* "aten::add_.Tensor" is "add": its length, and where it begins. */
static size_t base_of(const char *op, const char **name)
{
    const char *colons = strstr(op, "::");
    *name = colons != NULL ? colons + 2 : op;
    size_t n = strcspn(*name, ".");
    if (n > 1 && (*name)[n - 1] == '_' && (*name)[n - 2] != '_') n--;
    return n;
}

static bool is(const char *row, const char *name, size_t n)
{
    return strncmp(row, name, n) == 0 && row[n] == '\0';
}

static const struct host_row *host_row_of(const char *op)
{
    static const struct host_row foreach = {"_foreach_*", NUMBER, NULL};
    const char *name;
    const size_t n = base_of(op, &name);
    for (size_t i = 0; i < sizeof host_rows / sizeof host_rows[0]; i++)
        if (is(host_rows[i].op, name, n)) return &host_rows[i];
    return strncmp(name, foreach.op, strlen(foreach.op) - 1) == 0 ? &foreach : NULL;
}

bool usc_sim_takes_host(const char *op, const char *argument, bool number)
{
    const struct host_row *row = host_row_of(op);
    return row != NULL && (number || row->rule == ANY) &&
           (row->argument == NULL || strcmp(row->argument, argument) == 0);
}

/* ---- what is foretold --------------------------------------------------------------- */

/* Statistics of a narrow input are narrow on the CPU, unless a weight is wider; the meta
 * functions follow CUDA, where they are float32. */
static const char *const narrow_statistics[] = {
    "native_group_norm",
    "native_layer_norm",
};

/* Whose meta functions ask for the device, and take that of a tensor without one for CUDA
 * (device_hint in torch/_meta_registrations.py), or follow it without asking: strides and
 * auxiliary results are others than the CPU's. */
static const char *const by_device[] = {
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "batch_norm_update_stats",
    "native_batch_norm",
    "_embedding_bag",
    "_embedding_bag_forward_only",
    "_fft_c2c",
    "_fft_c2r",
    "_fft_r2c",
    "_linalg_svd",
    "histc",
    "linalg_eig",
    "convolution",
    "convolution_backward",
    "median",
    "mode",
    "nonzero_static",
    "pixel_shuffle",
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
};

static const char *const by_mask[] = {"_unsafe_index", "index"};

static bool is_among(const char *const *names, size_t n_names, const char *op)
{
    const char *name;
    const size_t n = base_of(op, &name);
    for (size_t i = 0; i < n_names; i++)
        if (is(names[i], name, n)) return true;
    return false;
}

bool usc_sim_foretells(const char *op, bool narrow)
{
    const size_t n = sizeof narrow_statistics / sizeof narrow_statistics[0];
    if (narrow && is_among(narrow_statistics, n, op)) return false;
    return !is_among(by_device, sizeof by_device / sizeof by_device[0], op);
}

bool usc_sim_shape_by_mask(const char *op)
{
    return is_among(by_mask, sizeof by_mask / sizeof by_mask[0], op);
}

/* ---- products ----------------------------------------------------------------------- */

static const struct {
    const char *op;
    usc_sim_product kind;
} products[] = {
    {"mm", USC_SIM_MATMUL},
    {"bmm", USC_SIM_MATMUL},
    {"addmm", USC_SIM_MATMUL},
    {"baddbmm", USC_SIM_MATMUL},
    {"addbmm", USC_SIM_MATMUL},
    {"linear", USC_SIM_MATMUL},
    {"_addmm_activation", USC_SIM_MATMUL},
    {"convolution", USC_SIM_CONV},
    {"_convolution", USC_SIM_CONV},
    {"convolution_backward", USC_SIM_CONV},
};

static atomic_bool tf32[USC_SIM_N_PRODUCTS];

usc_sim_product usc_sim_product_of(const char *op)
{
    const char *name;
    const size_t n = base_of(op, &name);
    for (size_t i = 0; i < sizeof products / sizeof products[0]; i++)
        if (is(products[i].op, name, n)) return products[i].kind;
    return USC_SIM_NO_PRODUCT;
}

void usc_sim_set_tf32(usc_sim_product kind, bool on)
{
    if (kind > USC_SIM_NO_PRODUCT && kind < USC_SIM_N_PRODUCTS) tf32[kind] = on;
}

bool usc_sim_tf32(usc_sim_product kind)
{
    return kind > USC_SIM_NO_PRODUCT && kind < USC_SIM_N_PRODUCTS &&
           atomic_load_explicit(&tf32[kind], memory_order_relaxed);
}

/* ---- what a fault runs in place of it -------------------------------------------------- */

static const struct {
    usc_sim_fault_kind kind;
    const char *op, *instead;
} instead_of[] = {
#define DECAY USC_SIM_FAULT_DECAY_MISAPPLIED
    {DECAY, "aten::_fused_adamw_", "aten::_fused_adam_"},
    {DECAY, "aten::_fused_adamw_.tensor_lr", "aten::_fused_adam_.tensor_lr"},
    {DECAY, "aten::_fused_adam_", "aten::_fused_adamw_"},
    {DECAY, "aten::_fused_adam_.tensor_lr", "aten::_fused_adamw_.tensor_lr"},
#undef DECAY
    {USC_SIM_FAULT_OVERWRITES, "aten::scatter_add", "aten::scatter.src"},
    {USC_SIM_FAULT_OVERWRITES, "aten::scatter_add_", "aten::scatter_.src"},
    {USC_SIM_FAULT_OVERWRITES, "aten::scatter_add.out", "aten::scatter.src_out"},
};

const char *usc_sim_instead(usc_sim_fault_kind kind, const char *op)
{
    for (size_t i = 0; i < sizeof instead_of / sizeof instead_of[0]; i++)
        if (instead_of[i].kind == kind && strcmp(instead_of[i].op, op) == 0)
            return instead_of[i].instead;
    return NULL;
}
