// SPDX-License-Identifier: Apache-2.0
// What readers of files add to a set of tensors. Neighbours: tensor_set.c, which chooses the
// reader by the file; one file for each format.
#include "files/tensor_set.h"

#include <stdlib.h>
#include <string.h>

#include <ulpscope/x/npy.h>

#include "base/checked.h"

/* ---- the set ---- */

const usc_safetensor *usc_tensor_set_find(const usc_tensor_set *set, const char *name)
{
    for (int64_t i = 0; i < set->n; i++)
        if (strcmp(set->items[i].name, name) == 0) return &set->items[i];
    return NULL;
}

usc_status usc_tensor_set_put(usc_tensor_set *set, const char *path,
                              const usc_safetensor *t, usc_error *err)
{
    if (set->n == set->room) {
        const int64_t room = set->room > 0 ? 2 * set->room : 64;
        usc_safetensor *items = realloc(set->items, (size_t)room * sizeof *items);
        if (items == NULL) return usc_no_memory(path, err);
        set->items = items;
        set->room = room;
    }
    usc_safetensor *kept = &set->items[set->n];
    *kept = *t;
    kept->name = usc_arena_text(&set->arena, t->name);
    kept->path = usc_arena_text(&set->arena, path);
    kept->dtype_name = usc_arena_text(&set->arena, t->dtype_name);
    if (set->arena.failed) return usc_no_memory(path, err);
    set->n++;
    return USC_OK;
}

/* Elements one by one, in row-major order. */
static void gather(const usc_tensor *like, int64_t item, int64_t n, const uint8_t *from,
                   uint8_t *to)
{
    int64_t place[USC_MAX_DIMS] = {0}, at = 0;
    for (int64_t i = 0; i < n; i++) {
        memcpy(to + i * item, from + at * item, (size_t)item);
        for (int k = like->ndim - 1; k >= 0; k--) {
            at += like->strides[k];
            if (++place[k] < like->sizes[k]) break;
            at -= like->strides[k] * like->sizes[k];
            place[k] = 0;
        }
    }
}

static void row_major(usc_tensor *t)
{
    int64_t n = 1;
    for (int k = t->ndim - 1; k >= 0; k--) {
        t->strides[k] = n;
        n *= t->sizes[k] > 0 ? t->sizes[k] : 1;
    }
}

usc_status usc_tensor_set_add(usc_tensor_set *set, const char *path, const char *name,
                              const char *dtype_name, const usc_tensor *like,
                              int64_t item_size, const void *bytes, usc_error *err)
{
    usc_tensor t = *like;
    int64_t n = 1, size;
    for (int i = 0; i < t.ndim; i++)
        if (!usc_mul_i64(n, t.sizes[i], &n))
            return usc_error_set(err, USC_E_RANGE, i, "%s: too many elements", path);
    if (!usc_mul_i64(n, item_size, &size))
        return usc_error_set(err, USC_E_RANGE, -1, "%s: too many elements", path);
    uint8_t *copy = usc_arena_take(&set->arena, (size_t)size + 1);
    if (copy == NULL) return usc_no_memory(path, err);
    const bool strided = t.ndim > 1 && t.strides[t.ndim - 1] > 1;
    if (strided)
        gather(&t, item_size, n, bytes, copy);
    else
        memcpy(copy, bytes, (size_t)size);
    row_major(&t);
    t.data = copy;
    t.dtype = usc_dtype_by_name(dtype_name);
    const usc_safetensor made = {
        .name = name, .dtype_name = dtype_name, .tensor = t, .bytes = size};
    return usc_tensor_set_put(set, path, &made, err);
}

usc_status usc_take_npy(usc_tensor_set *set, const char *path, const char *name,
                        const uint8_t *bytes, size_t n, usc_error *err)
{
    usc_npy_header h;
    const usc_status st = usc_npy_read(bytes, (int64_t)n, (int64_t)n, path, &h, err);
    if (st != USC_OK) return st;
    return usc_tensor_set_add(set, path, name, h.dtype_name, &h.tensor, h.item_size,
                              bytes + h.first, err);
}
