// SPDX-License-Identifier: Apache-2.0
// What a call may need, by the sizes of its tensors.
#include "run/rooms.h"

#include "base/checked.h"

#define SMALL ((int64_t)1 << 28) /* bytes that a worker has in any case */

enum {
    WIDE = 8,    /* bytes of an element of a reference */
    COPIES = 2,  /* of the captured bytes: as read, and on the device */
    OPERANDS = 4 /* tensors of a reference at a time: the truth and a perturbed one, their
                    yardsticks, inputs */
};

static int64_t sum(int64_t a, int64_t b)
{
    int64_t out;
    return usc_add_i64(a, b, &out) ? out : INT64_MAX;
}

static int64_t product(int64_t a, int64_t b)
{
    int64_t out;
    return usc_mul_i64(a, b, &out) ? out : INT64_MAX;
}

static int64_t elements_of(const usc_call_arg *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++)
        n = product(n, t->sizes[i]);
    return n;
}

/* Whether an earlier tensor of the call lies in the same storage, read as it is read. */
static bool is_counted(const usc_call *call, int i)
{
    for (int k = 0; k < i; k++)
        if (call->arg[k].storage == call->arg[i].storage &&
            (call->arg[k].role == USC_ROLE_IN) == (call->arg[i].role == USC_ROLE_IN))
            return true;
    return false;
}

int64_t usc_room_of_call(const usc_call *call)
{
    int64_t need = SMALL;
    for (int i = 0; i < call->n_args; i++) {
        const usc_call_arg *t = &call->arg[i];
        const int64_t n = elements_of(t);
        const int64_t size = t->storage_bytes != 0 ? t->storage_bytes : product(WIDE, n);
        if (!is_counted(call, i)) need = sum(need, product(COPIES, size));
        need = sum(need, product(OPERANDS * WIDE, n));
    }
    return need;
}

int64_t usc_room_of_pick(const usc_calls *calls, const usc_pick *pick)
{
    const usc_forward *f = pick->forward;
    if (f == NULL) {
        const usc_call *call = usc_calls_find(calls, pick->call);
        return call != NULL ? usc_room_of_call(call) : SMALL;
    }
    int64_t need = 0;
    for (int64_t i = 0; i < f->n_calls; i++) {
        const usc_call *call = usc_calls_find(calls, f->call[i]);
        if (call != NULL) need = sum(need, usc_room_of_call(call));
    }
    return need;
}

bool usc_room_admits(int64_t budget, int64_t need, int64_t held)
{
    return held == 0 || need <= budget - held;
}
