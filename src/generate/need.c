// SPDX-License-Identifier: Apache-2.0
// What operators ask of their arguments. A row here is a fact about torch's operators.
#include <ulpscope/x/generate.h>

#include <stdio.h>
#include <string.h>

typedef struct rule {
    const char *op; /* without overload; a name that ends with * begins with it */
    int argument;   /* place of the argument that has the need */
    usc_need need;
    int indexed;      /* INDEX: place of the tensor that is indexed */
    int axis;         /* INDEX: its axis; AXIS_...: see below */
    int dim, ignored; /* places of the arguments that say these; -1: none */
} rule;

enum { AXIS_DIM = -1, AXIS_CLASS = -2, AXIS_ALL = -3, AXIS_ITEM = -4 };

static const rule rules[] = {
    {"aten::embedding", 1, USC_NEED_INDEX, 0, 0, -1, -1},
    {"aten::_embedding_bag*", 1, USC_NEED_INDEX, 0, 0, -1, -1},
    {"aten::embedding_bag", 1, USC_NEED_INDEX, 0, 0, -1, -1},
    {"aten::index_select", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::index_add*", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::index_copy*", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::index_fill*", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::gather", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::take_along_dim", 1, USC_NEED_INDEX, 0, AXIS_DIM, 2, -1},
    {"aten::scatter*", 2, USC_NEED_INDEX, 0, AXIS_DIM, 1, -1},
    {"aten::take", 1, USC_NEED_INDEX, 0, AXIS_ALL, -1, -1},
    {"aten::put*", 1, USC_NEED_INDEX, 0, AXIS_ALL, -1, -1},
    {"aten::index", 1, USC_NEED_INDEX, 0, AXIS_ITEM, -1, -1},
    {"aten::index_put*", 1, USC_NEED_INDEX, 0, AXIS_ITEM, -1, -1},
    {"aten::_index_put_impl_", 1, USC_NEED_INDEX, 0, AXIS_ITEM, -1, -1},
    {"aten::nll_loss_forward", 1, USC_NEED_INDEX, 0, AXIS_CLASS, -1, 4},
    {"aten::nll_loss2d_forward", 1, USC_NEED_INDEX, 0, AXIS_CLASS, -1, 4},
    {"aten::nll_loss_backward", 2, USC_NEED_INDEX, 1, AXIS_CLASS, -1, 5},
    {"aten::nll_loss2d_backward", 2, USC_NEED_INDEX, 1, AXIS_CLASS, -1, 5},
    {"aten::cross_entropy_loss", 1, USC_NEED_INDEX, 0, AXIS_CLASS, -1, 4},
    {"aten::cholesky", 0, USC_NEED_DEFINITE, 0, 0, -1, -1},
    {"aten::linalg_cholesky*", 0, USC_NEED_DEFINITE, 0, 0, -1, -1},
    {"aten::cholesky_solve", 1, USC_NEED_TRIANGULAR, 0, 0, -1, -1},
    {"aten::cholesky_inverse", 0, USC_NEED_TRIANGULAR, 0, 0, -1, -1},
    {"aten::_cholesky_solve_helper", 1, USC_NEED_TRIANGULAR, 0, 0, -1, -1},
    {"aten::triangular_solve", 1, USC_NEED_TRIANGULAR, 0, 0, -1, -1},
    {"aten::linalg_solve_triangular", 0, USC_NEED_TRIANGULAR, 0, 0, -1, -1},
};

static bool names(const char *pattern, const char *op)
{
    const size_t n = strlen(pattern), n_op = strcspn(op, ".");
    if (n > 0 && pattern[n - 1] == '*') return strncmp(pattern, op, n - 1) == 0;
    return n == n_op && strncmp(pattern, op, n) == 0;
}

/* "args[1]" is place 1, "args[1][2]" item 2 of it; -1 for other paths. */
static int place_of(const char *path, int *item)
{
    int place = -1;
    *item = -1;
    if (sscanf(path, "args[%d][%d]", &place, item) < 1) return -1;
    return place;
}

static const rule *rule_of(const char *op, int place)
{
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].argument == place && names(rules[i].op, op)) return &rules[i];
    return NULL;
}

static const usc_call_arg *tensor_at(const usc_call *call, int place)
{
    for (int i = 0; i < call->n_args; i++) {
        int item;
        if (call->arg[i].role == USC_ROLE_IN && call->arg[i].path != NULL &&
            place_of(call->arg[i].path, &item) == place && item < 0)
            return &call->arg[i];
    }
    return NULL;
}

static const usc_value *value_at(const usc_arguments *a, int place)
{
    if (place < 0 || place >= a->n || a->argument[place].name != NULL) return NULL;
    return &a->argument[place].value;
}

/* Axes that an index list goes over: a mask of more than one axis would shift them, which
 * whole numbers beside it rarely do. */
static int64_t limit_of(const rule *r, const usc_call_arg *indexed, int item,
                        const usc_arguments *a)
{
    int64_t axis = r->axis, n = 1;
    if (r->axis == AXIS_DIM) {
        const usc_value *dim = value_at(a, r->dim);
        if (dim == NULL || dim->kind != USC_VALUE_INT) return 0;
        axis = dim->integer < 0 ? dim->integer + indexed->ndim : dim->integer;
    } else if (r->axis == AXIS_CLASS) {
        axis = indexed->ndim > 1 ? 1 : 0;
    } else if (r->axis == AXIS_ITEM) {
        axis = item;
    } else if (r->axis == AXIS_ALL) {
        for (int i = 0; i < indexed->ndim; i++)
            if (indexed->sizes[i] > 0 && n > INT64_MAX / indexed->sizes[i])
                return 0;
            else
                n *= indexed->sizes[i];
        return n;
    }
    return axis >= 0 && axis < indexed->ndim ? indexed->sizes[axis] : 0;
}

usc_status usc_stand_in_need(const usc_call *call, const usc_call_arg *arg,
                             usc_stand_in_options *out, usc_error *err)
{
    usc_arguments a = {0};
    int item;
    *out = (usc_stand_in_options){0};
    if (call->op == NULL || arg->path == NULL) return USC_OK;
    const rule *r = rule_of(call->op, place_of(arg->path, &item));
    if (r == NULL) return USC_OK;
    if (r->need == USC_NEED_INDEX &&
        usc_dtype_info_of(usc_dtype_by_name(arg->dtype_name))->kind == USC_KIND_FLOAT)
        return USC_OK; /* targets that are probabilities */
    const usc_status st = usc_arguments_read(call->args, &a, err);
    if (st != USC_OK) return st;
    const usc_call_arg *indexed = tensor_at(call, r->indexed);
    const usc_value *ignored = value_at(&a, r->ignored);
    out->need = r->need;
    if (r->need == USC_NEED_INDEX && indexed != NULL)
        out->limit = limit_of(r, indexed, item, &a);
    out->has_ignored = ignored != NULL && ignored->kind == USC_VALUE_INT;
    if (out->has_ignored) out->ignored = ignored->integer;
    usc_arguments_free(&a);
    return USC_OK;
}
