// SPDX-License-Identifier: Apache-2.0
// Copies as commands of a stream, in all directions.
#include <ulpscope_sim/stream.h>

#include <stdlib.h>
#include <string.h>

typedef struct copy {
    void *to;
    const void *from;
    size_t size;
} copy;

static bool on_device(const void *address)
{
    return usc_sim_device_of(address) >= 0;
}

static usc_status run(void *ctx, usc_error *err)
{
    const copy *c = ctx;
    const void *from = on_device(c->from) ? c->from : NULL;
    const void *to = on_device(c->to) ? c->to : NULL;
    usc_status st = usc_sim_open(to, USC_SIM_WRITE, err);
    if (st != USC_OK) return st;
    st = usc_sim_open(from, USC_SIM_READ, err);
    if (st == USC_OK) {
        memmove(c->to, c->from, c->size);
        usc_sim_close(from, USC_SIM_READ);
    }
    usc_sim_close(to, USC_SIM_WRITE);
    return st;
}

static void drop(void *ctx)
{
    const copy *c = ctx;
    usc_sim_unpin(c->from);
    usc_sim_unpin(c->to);
    free(ctx);
}

usc_status usc_sim_copy(usc_sim_stream stream, void *to, const void *from, size_t size,
                        usc_error *err)
{
    copy *c = malloc(sizeof *c);
    if (c == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "sim: no memory for a copy");
    *c = (copy){to, from, size};
    usc_sim_pin(from);
    usc_sim_pin(to);
    const usc_sim_command command = {.run = run, .drop = drop, .ctx = c, .name = "copy"};
    return usc_sim_submit(stream, &command, err);
}
