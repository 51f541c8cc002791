// SPDX-License-Identifier: Apache-2.0
// Cost of usc_capture_begin + usc_capture_end on the calling thread, for a call that
// reads one storage and writes another, beside memcpy of the same storage. Three kinds of
// call: `same` (input known, result is a view of it), `new` (result's bytes are new).
// Usage: bench_capture [FOLDER for the traces, default /tmp]
#include <ulpscope/x/capture.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES_PER_CASE ((int64_t)256 << 20)
enum { MAX_CALLS = 4000, N_RUNS = 3 };

typedef struct bench_case {
    const char *folder;
    int64_t size; /* of a storage */
    bool stats_only, fresh;
} bench_case;

typedef struct bench_result {
    double per_call, total; /* seconds: in begin and end; until everything is durable */
    usc_capture_counts counts;
} bench_result;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int n_calls_of(int64_t size)
{
    const int64_t n = BYTES_PER_CASE / size;
    return n < MAX_CALLS ? (int)n : MAX_CALLS;
}

static usc_capture_tensor whole(void *bytes, int64_t size, usc_role role)
{
    usc_capture_tensor t = {
        .view = {.data = bytes, .dtype = USC_F32, .ndim = 1, .strides = {1}},
        .dtype_name = "float32",
        .storage = bytes,
        .base = bytes,
        .storage_size = size,
        .device = "cpu",
        .role = role,
        .i_item = -1,
    };
    t.view.sizes[0] = size / 4;
    return t;
}

static void die(const char *what, const usc_error *err)
{
    fprintf(stderr, "bench_capture: %s: %s\n", what, err->text);
    exit(2);
}

static usc_capture *open_session(const bench_case *b, const char *path)
{
    const usc_capture_options options = {.stats_only = b->stats_only};
    usc_capture *c = NULL;
    usc_error err = {0};
    if (usc_capture_open(path, NULL, &options, &c, &err) != USC_OK) die("open", &err);
    /* As in a training run, time passes before the captured step. */
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    usc_capture_step_begin(c, 0);
    return c;
}

/* `n` calls; the result of each is changed in between where it is to be new. */
static double run_calls(usc_capture *c, const bench_case *b, float *in, float *out)
{
    const usc_capture_tensor input = whole(in, b->size, USC_ROLE_IN);
    const usc_capture_tensor result = b->fresh ? whole(out, b->size, USC_ROLE_MUTATED)
                                               : whole(in, b->size, USC_ROLE_OUT);
    const usc_capture_call call = {.op = usc_capture_op(c, "bench::op", ""),
                                   .args =
                                       "{\"args\": [{\"tensor\": 0}], \"kwargs\": {}}",
                                   .tensors = &input,
                                   .n_tensors = 1};
    const int n = n_calls_of(b->size);
    double spent = 0;
    for (int i = 0; i < n; i++) {
        for (int64_t k = 0; b->fresh && k < b->size / 4; k++)
            out[k] = (float)(i + k);
        const double start = now();
        usc_capture_end(c, usc_capture_begin(c, &call), &result, 1, true);
        spent += now() - start;
    }
    return spent / n;
}

static bench_result run_case(const bench_case *b)
{
    char folder[256], path[300], command[320];
    snprintf(folder, sizeof folder, "%s/usc-bench-XXXXXX", b->folder);
    usc_error err = {.text = "cannot make a folder"};
    if (mkdtemp(folder) == NULL) die(b->folder, &err);
    snprintf(path, sizeof path, "%s/trace", folder);
    float *in = malloc((size_t)b->size), *out = malloc((size_t)b->size);
    if (in == NULL || out == NULL) die("memory", &err);
    for (int64_t k = 0; k < b->size / 4; k++)
        in[k] = out[k] = (float)k;

    bench_result r = {0};
    usc_capture *c = open_session(b, path);
    const double start = now();
    r.per_call = run_calls(c, b, in, out);
    if (usc_capture_flush(c, &err) != USC_OK) die("flush", &err);
    r.total = now() - start;
    usc_capture_count(c, &r.counts);
    if (usc_capture_close(c, true, &err) != USC_OK) die("close", &err);
    free(in);
    free(out);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command) != 0) fprintf(stderr, "bench_capture: %s stays\n", folder);
    return r;
}

/* Seconds for one memcpy of `size` bytes that were just written. */
static double memcpy_time(int64_t size)
{
    /* Half a page apart: some CPUs copy slowly between places that are equal modulo a
     * page, as two large mallocs are. */
    char *from = malloc((size_t)size), *place = malloc((size_t)size + 4096);
    char *to = place + 2048;
    double best = 1e9;
    if (from == NULL || place == NULL) return 0;
    memset(from, 1, (size_t)size);
    for (int run = 0; run < 50; run++) {
        from[run] = (char)run;
        const double start = now();
        memcpy(to, from, (size_t)size);
        const double spent = now() - start;
        if (to[run] == (char)run && spent < best) best = spent;
    }
    free(from);
    free(place);
    return best;
}

int main(int argc, char **argv)
{
    static const int64_t sizes[] = {1 << 10, 256 << 10, 4 << 20};
    printf("%-6s %-5s %10s %12s %10s %10s %12s %10s\n", "data", "call", "bytes",
           "us/call", "GB/s", "memcpy us", "durable MB/s", "waited ms");
    for (int mode = 0; mode < 4; mode++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            const bench_case b = {.folder = argc > 1 ? argv[1] : "/tmp",
                                  .size = sizes[i],
                                  .stats_only = mode >= 2,
                                  .fresh = mode % 2 == 1};
            bench_result best = {.per_call = 1e9};
            for (int run = 0; run < N_RUNS; run++) {
                const bench_result r = run_case(&b);
                if (r.per_call < best.per_call) best = r;
            }
            /* A new result is read beside the input: two storages pass. */
            const double bytes = (double)b.size * (b.fresh ? 2 : 1);
            printf("%-6s %-5s %10lld %12.2f %10.2f %10.2f %12.0f %10.1f\n",
                   b.stats_only ? "stats" : "full", b.fresh ? "new" : "same",
                   (long long)b.size, 1e6 * best.per_call, 1e-9 * bytes / best.per_call,
                   1e6 * memcpy_time(b.size),
                   1e-6 * (double)best.counts.bytes_written / best.total,
                   1e-6 * (double)best.counts.wait_ns);
        }
    return 0;
}
