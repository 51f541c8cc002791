// SPDX-License-Identifier: Apache-2.0
// When commands ran.
#include <ulpscope_sim/timeline.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static usc_sim_span *spans;
static size_t n_spans, max_spans;
static atomic_bool is_on;
static _Thread_local usc_sim_launched here; /* whose launch this thread runs */

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void usc_sim_timeline_set_on(bool on)
{
    pthread_mutex_lock(&lock);
    if (on) {
        free(spans);
        spans = NULL;
        n_spans = max_spans = 0;
    }
    is_on = on;
    pthread_mutex_unlock(&lock);
}

uint64_t usc_sim_timeline_set_caller(uint64_t caller)
{
    const uint64_t before = here.caller;
    here.caller = caller;
    return before;
}

static int64_t thread(void)
{
    return (int64_t)syscall(SYS_gettid);
}

usc_sim_launched usc_sim_timeline_launched(void)
{
    const int64_t time = usc_sim_timeline_begin();
    return (usc_sim_launched){here.caller, time, time != 0 ? thread() : 0};
}

usc_sim_launched usc_sim_timeline_set_launched(usc_sim_launched launched)
{
    const usc_sim_launched before = here;
    here = launched;
    return before;
}

int64_t usc_sim_timeline_begin(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed) ? now() : 0;
}

static bool has_room(void)
{
    if (n_spans < max_spans) return true;
    const size_t max = max_spans > 0 ? 2 * max_spans : 1024;
    usc_sim_span *more = realloc(spans, max * sizeof *spans);
    if (more == NULL) return false;
    spans = more;
    max_spans = max;
    return true;
}

void usc_sim_timeline_end(const char *name, usc_sim_stream stream, int64_t begin)
{
    if (begin == 0) return;
    usc_sim_span span = {
        .stream = stream, .begin = begin, .end = now(), .launched = here};
    if (here.time == 0) { /* it runs at the call */
        span.launched.time = begin;
        span.launched.thread = thread();
    }
    strncpy(span.name, name, sizeof span.name - 1);
    pthread_mutex_lock(&lock);
    if (is_on && has_room()) spans[n_spans++] = span;
    pthread_mutex_unlock(&lock);
}

bool usc_sim_timeline_get(size_t i, usc_sim_span *out)
{
    pthread_mutex_lock(&lock);
    const bool there = i < n_spans;
    if (there) *out = spans[i];
    pthread_mutex_unlock(&lock);
    return there;
}
