// SPDX-License-Identifier: Apache-2.0
// The kernel that runs on a thread, and which of its arguments an address belongs to: told
// where it touched memory that it must not.
#include "blocks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MOST_AXES 8 /* told of an argument; further ones are "..." */

static _Thread_local const usc_sim_launch *running;

const usc_sim_launch *usc_sim_launch_now(void)
{
    return running;
}

const usc_sim_launch *usc_sim_set_launch(const usc_sim_launch *launch)
{
    const usc_sim_launch *before = running;
    if (before != NULL && before != launch && launch == NULL) usc_sim_log_kernel(before);
    running = launch;
    return before;
}

/* ---- text ------------------------------------------------------------------------ */

typedef struct text {
    char *at;
    size_t size, n;
} text;

static void add(text *t, const char *format, ...) USC_PRINTF(2, 3);

static void add(text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(t->at + t->n, t->size - t->n, format, args);
    va_end(args);
    if (n > 0) t->n = t->n + (size_t)n < t->size ? t->n + (size_t)n : t->size - 1;
}

static void add_list(text *t, const int64_t *values, int n)
{
    add(t, "[");
    for (int i = 0; i < n && i < MOST_AXES; i++)
        add(t, "%s%lld", i > 0 ? ", " : "", (long long)values[i]);
    add(t, "%s]", n > MOST_AXES ? ", ..." : "");
}

/* ---- which argument --------------------------------------------------------------- */

/* The index of the element that holds byte `n_bytes` from the first; false: none does. The
 * largest stride first, as addresses are made of them. */
static bool find_element(const usc_sim_argument *a, int64_t n_bytes, int64_t *index)
{
    int64_t left = n_bytes / (int64_t)a->item_size;
    bool done[MOST_AXES] = {false};
    if (n_bytes < 0 || a->ndim > MOST_AXES) return false;
    for (int k = 0; k < a->ndim; k++) {
        int axis = -1;
        for (int i = 0; i < a->ndim; i++)
            if (!done[i] && (axis < 0 || a->strides[i] > a->strides[axis])) axis = i;
        const int64_t stride = a->strides[axis];
        const int64_t most = a->shape[axis] - 1;
        const int64_t steps = stride > 0 ? left / stride : 0;
        if (most < 0) return false;
        index[axis] = steps < most ? steps : most;
        left -= index[axis] * stride;
        done[axis] = true;
    }
    return left == 0;
}

static void add_argument(text *t, const usc_sim_argument *a, const block *b,
                         const char *at)
{
    int64_t index[MOST_AXES] = {0};
    const int64_t n_bytes = at - (const char *)a->data;
    add(t, "argument '%s' (%s, shape ", a->name, a->dtype);
    add_list(t, a->shape, a->ndim);
    add(t, ", strides ");
    add_list(t, a->strides, a->ndim);
    add(t, ", offset %td) at ",
        ((const char *)a->data - b->user) / (ptrdiff_t)a->item_size);
    if (find_element(a, n_bytes, index)) {
        add(t, "element ");
        add_list(t, index, a->ndim);
    } else {
        add(t, "%lld bytes from its first element, which is none of its elements",
            (long long)n_bytes);
    }
    add(t, ", ");
}

/* An argument that has the address among its elements goes before one that only lies in the
 * same block. */
static bool find_argument(const usc_sim_launch *l, const block *b, const char *at,
                          usc_sim_argument *best)
{
    usc_sim_argument a = {0};
    int64_t index[MOST_AXES];
    bool found = false;
    for (size_t i = 0; l->argument(l->ctx, i, &a); i++) {
        const char *data = a.data;
        if (data == NULL || a.item_size == 0 || data < b->user ||
            data >= b->user + b->asked)
            continue;
        const bool holds = find_element(&a, at - data, index);
        if (!found || holds) *best = a;
        found = true;
        if (holds) break;
    }
    return found;
}

void usc_sim_launch_tell(const usc_sim_launch *l, const block *b, const char *at,
                         char *out, size_t size)
{
    text t = {out, size, 0};
    usc_sim_argument a;
    const int its = usc_sim_device_of(at);
    out[0] = '\0';
    if (l->device >= 0 && l->device != its)
        add(&t, "memory of sim:%d, itself on sim:%d, ", its, l->device);
    if (l->argument == NULL || b == NULL || b->user == NULL) return;
    if (find_argument(l, b, at, &a))
        add_argument(&t, &a, b, at);
    else
        add(&t, "what is none of its arguments, ");
}
