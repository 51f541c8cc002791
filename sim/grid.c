// SPDX-License-Identifier: Apache-2.0
// Launches of kernels: limits, memory that is open meanwhile, blocks in turn.
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope_sim/profile.h>

#include "grid_parts.h"

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local bool inside;

bool usc_grid_inside(void)
{
    return inside;
}

/* ---- limits ------------------------------------------------------------------------ */

typedef struct allowed {
    struct allowed *next;
    size_t size;
    char name[];
} allowed;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static allowed *all_allowed;

/* With the lock held; NULL: nobody asked for it. */
static allowed *find_allowed(const char *name, size_t n)
{
    allowed *a = all_allowed;
    while (a != NULL && (strncmp(a->name, name, n) != 0 || a->name[n] != '\0'))
        a = a->next;
    return a;
}

/* The most that may be asked for: a profile that has less than usual has no more. */
static size_t most_shared(void)
{
    usc_sim_profile profile;
    usc_sim_profile_get(&profile);
    const size_t size = (size_t)profile.shared_size;
    return size < USC_GRID_SHARED_SIZE ? size : USC_GRID_SHARED_SIZE_MAX;
}

usc_status usc_grid_allow_shared(const char *name, size_t size, usc_error *err)
{
    if (size > most_shared())
        return usc_error_set(err, USC_E_RANGE, -1,
                             "kernel %s asks for %zu bytes of shared memory; a block has "
                             "%zu at most",
                             name, size, most_shared());
    const size_t n = strlen(name);
    pthread_mutex_lock(&lock);
    allowed *a = find_allowed(name, n);
    if (a == NULL && (a = malloc(sizeof *a + n + 1)) != NULL) {
        a->next = all_allowed;
        memcpy(a->name, name, n + 1);
        all_allowed = a;
    }
    if (a != NULL) a->size = size;
    pthread_mutex_unlock(&lock);
    if (a == NULL) return usc_error_set(err, USC_E_NOMEM, -1, "no memory for a kernel");
    return USC_OK;
}

static size_t shared_limit(const char *name)
{
    usc_sim_profile profile;
    usc_sim_profile_get(&profile);
    size_t limit = (size_t)profile.shared_size;
    pthread_mutex_lock(&lock);
    const allowed *a = find_allowed(name, strcspn(name, "<"));
    if (a != NULL && a->size > limit) limit = a->size;
    pthread_mutex_unlock(&lock);
    return limit < most_shared() ? limit : most_shared();
}

static usc_status check_limits(const usc_grid_kernel *k, usc_error *err)
{
    const usc_grid_dim g = k->grid, b = k->block;
    const uint64_t n_threads = (uint64_t)b.x * b.y * b.z;
    if (b.x > USC_GRID_MAX_THREADS || b.y > USC_GRID_MAX_THREADS || b.z > 64 ||
        n_threads == 0 || n_threads > USC_GRID_MAX_THREADS)
        return usc_error_set(err, USC_E_RANGE, -1,
                             "kernel %s, launched at %s: a block of (%u,%u,%u) threads; "
                             "it has 1 to %d, 64 at most along z",
                             k->name, k->place, b.x, b.y, b.z, USC_GRID_MAX_THREADS);
    if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > INT32_MAX || g.y > 65535 || g.z > 65535)
        return usc_error_set(err, USC_E_RANGE, -1,
                             "kernel %s, launched at %s: a grid of (%u,%u,%u) blocks; it "
                             "has 1 to (2147483647,65535,65535)",
                             k->name, k->place, g.x, g.y, g.z);
    if (k->shared_size > shared_limit(k->name))
        return usc_error_set(err, USC_E_RANGE, -1,
                             "kernel %s, launched at %s: %zu bytes of dynamic shared "
                             "memory; it may have %zu (cudaFuncSetAttribute asks for up "
                             "to %zu)",
                             k->name, k->place, k->shared_size, shared_limit(k->name),
                             most_shared());
    if (k->warp_size != 32 && k->warp_size != 64)
        return usc_error_set(err, USC_E_RANGE, -1, "kernel %s: warps of %u lanes",
                             k->name, k->warp_size);
    return USC_OK;
}

/* ---- arguments ---------------------------------------------------------------------- */

/* Whether it is memory that device and host share: pinned, or a variable of a library. */
static bool is_mapped(const void *address)
{
    Dl_info where;
    return usc_sim_is_pinned(address) || dladdr(address, &where) != 0;
}

static usc_status check_arguments(const usc_grid_kernel *k, usc_error *err)
{
    for (size_t i = 0; i < k->n_arguments; i++) {
        const usc_grid_argument *a = &k->arguments[i];
        if (a->address == NULL || a->hidden || usc_sim_device_of(a->address) >= 0 ||
            is_mapped(a->address))
            continue;
        return usc_error_set(
            err, USC_E_ARG, a->position,
            "kernel %s, launched at %s: argument %d points to the host's "
            "memory; is that tensor on the CPU?",
            k->name, k->place, a->position);
    }
    return USC_OK;
}

static usc_sim_access access_of(const usc_grid_argument *a)
{
    return a->write ? USC_SIM_WRITE : USC_SIM_READ;
}

static bool is_device(const usc_grid_argument *a)
{
    return usc_sim_device_of(a->address) >= 0;
}

/* The first n arguments are closed. What was written around them is told first: closing
 * such a block ends the process. */
static void close_first(const usc_grid_kernel *k, size_t n, bool *told, usc_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const usc_grid_argument *a = &k->arguments[i];
        int64_t at = 0;
        size_t size = 0;
        if (!is_device(a)) continue;
        if (a->write && usc_sim_guard_mend(a->address, &at, &size) && !*told) {
            *told = true;
            (void)usc_error_set(
                err, USC_E_ARG, a->position,
                "kernel %s, launched at %s: writes %lld bytes %s argument %d, a block of "
                "%zu bytes",
                k->name, k->place, (long long)(at < 0 ? -at : at),
                at < 0 ? "before" : "behind the end of", a->position, size);
        }
        usc_sim_close(a->address, access_of(a));
    }
}

static usc_status open_all(const usc_grid_kernel *k, usc_grid_argument *opened, size_t *n,
                           usc_error *err)
{
    *n = 0;
    for (size_t i = 0; i < k->n_arguments; i++) {
        const usc_grid_argument *a = &k->arguments[i];
        usc_error why;
        if (!is_device(a)) continue;
        if (usc_sim_open(a->address, access_of(a), &why) == USC_OK)
            opened[(*n)++] = *a;
        else if (!a->hidden) /* that was a number after all */
            return usc_error_set(err, USC_E_ARG, a->position,
                                 "kernel %s, launched at %s: argument %d: %s", k->name,
                                 k->place, a->position, why.text);
    }
    return USC_OK;
}

/* ---- running ------------------------------------------------------------------------ */

/* No thread has begun. */
static void restart(const usc_grid_kernel *k)
{
    grid_run *g = &usc_grid;
    if (g->failed) { /* its threads stand where they stood */
        usc_fiber_forget_all();
        g->idle = NULL;
    }
    g->kernel = k;
    g->ready.head = g->barrier.head = NULL;
    g->n_threads = k->block.x * k->block.y * k->block.z;
    g->n_waiting = g->n_at_barrier = g->n_yes = 0;
    memset(g->waiting, 0, sizeof g->waiting);
    g->failed = false;
    usc_grid_warps_begin();
}

static void begin(const usc_grid_kernel *k)
{
    grid_run *g = &usc_grid;
    restart(k);
    g->failure = (usc_error){0};
    g->scheduled = usc_sim_schedule_seed(&g->seed);
    g->n_warps = g->scheduled ? (g->n_threads + k->warp_size - 1) / k->warp_size : 1;
    usc_grid_now.block_dim = k->block;
    usc_grid_now.grid_dim = k->grid;
}

static void run_blocks(const usc_grid_kernel *k)
{
    usc_grid_blocks_run(false);
    if (!usc_grid_fault_caught()) return;
    restart(k); /* once more, slowly, to see which thread it is */
    usc_grid_now.precise = true;
    usc_grid_blocks_run(true);
    usc_grid_now.precise = false;
    usc_grid.failed = true;
}

/* With the lock held. */
static usc_status run(const usc_grid_kernel *k, usc_error *err)
{
    static char *shared; /* kept: at most USC_GRID_SHARED_SIZE_MAX */
    if (shared == NULL) shared = aligned_alloc(4096, (size_t)100 << 10);
    usc_grid_argument *opened = malloc((k->n_arguments + 1) * sizeof *opened);
    if (shared == NULL || opened == NULL) {
        free(opened);
        return usc_error_set(err, USC_E_NOMEM, -1, "kernel %s: no memory", k->name);
    }
    usc_grid_kernel open = *k;
    open.arguments = opened;
    usc_status st = open_all(k, opened, &open.n_arguments, err);
    if (st == USC_OK) {
        begin(&open);
        usc_grid_now.shared = shared;
        usc_grid_race_begin(&open);
        usc_grid_fault_watch();
        inside = true;
        run_blocks(&open);
        inside = false;
        usc_grid_fault_end();
        usc_grid_race_end();
        (void)fflush(stdout); /* what the kernel printed */
        if (usc_grid_fault_told() || usc_grid.failed)
            st = usc_error_set(err, usc_grid.failure.status, -1, "%s",
                               usc_grid.failure.text);
    }
    bool told = st != USC_OK;
    close_first(&open, open.n_arguments, &told, err);
    if (told && st == USC_OK) st = USC_E_ARG;
    free(opened);
    return st;
}

usc_status usc_grid_run(const usc_grid_kernel *kernel, usc_error *err)
{
    usc_status st = check_limits(kernel, err);
    if (st == USC_OK) st = check_arguments(kernel, err);
    if (st != USC_OK) return st;
    if (inside)
        return usc_error_set(err, USC_E_ARG, -1, "kernel %s is launched by a kernel",
                             kernel->name);
    pthread_mutex_lock(&one_at_a_time);
    st = run(kernel, err);
    pthread_mutex_unlock(&one_at_a_time);
    return st;
}

void usc_grid_fail(const char *format, ...)
{
    char text[sizeof usc_grid.failure.text], who[160] = "the host";
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (!inside) {
        (void)fprintf(stderr, "ulpscope: %s\n", text);
        abort();
    }
    usc_grid_who(who, sizeof who);
    (void)usc_error_set(&usc_grid.failure, USC_E_ARG, -1, "%s: %s", who, text);
    usc_grid_stop();
}

/* ---- launching ---------------------------------------------------------------------- */

typedef struct launched {
    usc_grid_kernel kernel;
    usc_grid_argument arguments[];
} launched;

/* The queue says who it was and where it was launched. */
static void without_name(const usc_grid_kernel *k, usc_error *err)
{
    char begin[2][USC_SIM_NAME_TEXT + USC_SIM_PLACE_TEXT];
    (void)snprintf(begin[0], sizeof begin[0], "kernel %s, launched at %s: ", k->name,
                   k->place);
    (void)snprintf(begin[1], sizeof begin[1], "kernel %s, ", k->name);
    for (int i = 0; i < 2; i++) {
        const size_t n = strlen(begin[i]);
        if (strncmp(err->text, begin[i], n) != 0) continue;
        memmove(err->text, err->text + n, strlen(err->text + n) + 1);
        return;
    }
}

static usc_status run_launched(void *ctx, usc_error *err)
{
    const launched *l = ctx;
    const usc_status st = usc_grid_run(&l->kernel, err);
    if (st != USC_OK && err != NULL) without_name(&l->kernel, err);
    return st;
}

static void drop_launched(void *ctx)
{
    launched *l = ctx;
    for (size_t i = 0; i < l->kernel.n_arguments; i++)
        usc_sim_unpin(l->arguments[i].address);
    if (l->kernel.drop != NULL) l->kernel.drop(l->kernel.ctx);
    free(l);
}

static usc_status prepare(const usc_grid_kernel *k, launched **out, usc_error *err)
{
    usc_status st = check_limits(k, err);
    if (st == USC_OK) st = check_arguments(k, err);
    if (st != USC_OK) return st;
    launched *l = malloc(sizeof *l + k->n_arguments * sizeof l->arguments[0]);
    if (l == NULL)
        return usc_error_set(err, USC_E_NOMEM, -1, "kernel %s: no memory", k->name);
    l->kernel = *k;
    l->kernel.arguments = l->arguments;
    for (size_t i = 0; i < k->n_arguments; i++) {
        l->arguments[i] = k->arguments[i];
        usc_sim_pin(l->arguments[i].address);
    }
    *out = l;
    return USC_OK;
}

usc_status usc_grid_launch(usc_sim_stream stream, const usc_grid_kernel *kernel,
                           usc_error *err)
{
    launched *l = NULL;
    const usc_status st = prepare(kernel, &l, err);
    if (st != USC_OK) {
        if (kernel->drop != NULL) kernel->drop(kernel->ctx);
        return st;
    }
    usc_sim_command c = {.run = run_launched, .drop = drop_launched, .ctx = l};
    (void)snprintf(c.name, sizeof c.name, "kernel %s", kernel->name);
    (void)snprintf(c.place, sizeof c.place, "%s", kernel->place);
    return usc_sim_submit(stream, &c, err);
}
