// SPDX-License-Identifier: Apache-2.0
// Memory of one question, and tensors as the questions read them.
#include "cause/cause_state.h"

#include <string.h>

#include "tensor/walk.h"

void *usc_cause_room(usc_cause *c, int64_t n, size_t size)
{
    if (n < 0 || (uint64_t)n > SIZE_MAX / 4 / size) {
        c->work.failed = true;
        return NULL;
    }
    return usc_arena_take(&c->work, (size_t)n * size + 1);
}

bool usc_cause_operand(const usc_tensor *t, usc_arena *arena, operand *out)
{
    const usc_dtype_info *info = usc_dtype_info_of(t->dtype);
    *out = (operand){.data = t->data,
                     .dtype = t->dtype,
                     .kind = info->kind,
                     .size = info->size,
                     .name = "",
                     .ndim = t->ndim};
    memcpy(out->sizes, t->sizes, sizeof out->sizes);
    if (usc_tensor_numel(t, &out->n, NULL) != USC_OK) return false;
    if (usc_tensor_contiguous(t)) return true;
    unsigned char *copy = usc_arena_take(arena, (size_t)out->n * out->size);
    if (copy == NULL) return false;
    const usc_walk walk = usc_walk_over(t);
    usc_walk_gather(&walk, 0, (size_t)out->n, copy);
    out->data = copy;
    return true;
}
