// SPDX-License-Identifier: Apache-2.0
// The simulated accelerator without torch: y = a x + y by a kernel in C. Copies run on one
// stream, the kernel on another; events order them, and nothing waits but the end.
// `sim_saxpy forget` leaves one order out, as a bug does: a schedule by a seed then shows
// it at once, where threads would show it once a month. Prints one sentence; ends with 1
// where the result is wrong.
#include <stdio.h>
#include <string.h>

#include <ulpscope_sim/stream.h>

enum { N = 1024 };

typedef struct saxpy {
    float a;
    const float *x; /* both in device memory */
    float *y;
} saxpy;

/* A kernel opens what it uses, as the device's own memory unit would for it. */
static usc_status run_saxpy(void *ctx, usc_error *err)
{
    const saxpy *s = ctx;
    usc_status st = usc_sim_open(s->x, USC_SIM_READ, err);
    if (st != USC_OK) return st;
    st = usc_sim_open(s->y, USC_SIM_WRITE, err);
    if (st == USC_OK) {
        for (int i = 0; i < N; i++)
            s->y[i] += s->a * s->x[i];
        usc_sim_close(s->y, USC_SIM_WRITE);
    }
    usc_sim_close(s->x, USC_SIM_READ);
    return st;
}

/* What the host has, and what lies on the device. */
typedef struct work {
    float x[N], y[N];
    saxpy kernel;
    usc_sim_stream copies, kernels;
    usc_sim_event *there, *done;
} work;

static usc_status prepare(work *w, usc_error *err)
{
    for (int i = 0; i < N; i++) {
        w->x[i] = (float)i;
        w->y[i] = 1;
    }
    w->copies = usc_sim_stream_next(0, false);
    w->kernels = usc_sim_stream_next(0, true);
    w->kernel.a = 2;
    void *x, *y;
    usc_status st = usc_sim_malloc(0, sizeof w->x, &x, err);
    if (st == USC_OK) st = usc_sim_malloc(0, sizeof w->y, &y, err);
    if (st == USC_OK) st = usc_sim_event_create(false, &w->there, err);
    if (st == USC_OK) st = usc_sim_event_create(false, &w->done, err);
    if (st != USC_OK) return st;
    w->kernel.x = x;
    w->kernel.y = y;
    return USC_OK;
}

static usc_status queue_all(work *w, bool forget, usc_error *err)
{
    const usc_sim_command launch = {
        .run = run_saxpy, .ctx = &w->kernel, .name = "saxpy", .place = "sim_saxpy.c"};
    void *x = (void *)(uintptr_t)w->kernel.x;
    usc_status st = usc_sim_copy(w->copies, x, w->x, sizeof w->x, err);
    if (st == USC_OK) st = usc_sim_copy(w->copies, w->kernel.y, w->y, sizeof w->y, err);
    if (st == USC_OK) st = usc_sim_event_record(w->there, w->copies, err);
    if (st == USC_OK && !forget) st = usc_sim_stream_wait(w->kernels, w->there, err);
    if (st == USC_OK) st = usc_sim_submit(w->kernels, &launch, err);
    if (st == USC_OK) st = usc_sim_event_record(w->done, w->kernels, err);
    if (st == USC_OK) st = usc_sim_stream_wait(w->copies, w->done, err);
    if (st == USC_OK) st = usc_sim_copy(w->copies, w->y, w->kernel.y, sizeof w->y, err);
    if (st == USC_OK) st = usc_sim_stream_synchronize(w->copies, err);
    return st;
}

int main(int argc, char **argv)
{
    static work w;
    usc_error err;
    const bool forget = argc > 1 && strcmp(argv[1], "forget") == 0;
    if (forget) usc_sim_schedule(&(usc_sim_schedule_options){.seed = 1, .delay = 1});
    usc_status st = prepare(&w, &err);
    if (st == USC_OK) st = queue_all(&w, forget, &err);
    if (st != USC_OK) {
        fprintf(stderr, "sim_saxpy: %s\n", err.text);
        return 2;
    }
    int n_wrong = 0;
    for (int i = 0; i < N; i++)
        n_wrong += w.y[i] != 2 * (float)i + 1;
    printf("%d of %d elements are wrong\n", n_wrong, N);
    usc_sim_event_free(w.there);
    usc_sim_event_free(w.done);
    usc_sim_free((void *)(uintptr_t)w.kernel.x);
    usc_sim_free(w.kernel.y);
    return n_wrong > 0;
}
