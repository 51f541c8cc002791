// SPDX-License-Identifier: Apache-2.0
// A port over the cases of tests/port in other encodings, and with bytes swapped: line
// ends and marks stay, what is no text stays whole, twice is once, and the way back gives
// every byte. A number as argument: that many mutated files (a sample else).
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "port_bundle.h"

#include <cmocka.h>

static char folder[512];
static int n_files = 150;

/* ---- the sources of all cases */

typedef struct source {
    char name[256];
    char *bytes;
    size_t n;
} source;

static source sources[256];
static size_t n_sources;

static void take_source(void *ctx, const char *where, const char *path, const char *bytes,
                        size_t n)
{
    (void)ctx;
    if (strcmp(where, "src") != 0 || n == 0 || n_sources == 256) return;
    source *s = &sources[n_sources++];
    const char *last = strrchr(path, '/');
    (void)snprintf(s->name, sizeof s->name, "%s", last != NULL ? last + 1 : path);
    s->bytes = malloc(n + 1);
    assert_non_null(s->bytes);
    memcpy(s->bytes, bytes, n);
    s->bytes[n] = '\0';
    s->n = n;
}

static int read_sources(void **state)
{
    char path[2048];
    DIR *dir = opendir(USC_TEST_DATA "/port");
    (void)state;
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        size_t n;
        if (strstr(e->d_name, ".case") == NULL) continue;
        (void)snprintf(path, sizeof path, USC_TEST_DATA "/port/%s", e->d_name);
        char *text = bundle_read(path, &n);
        if (text != NULL) bundle_walk(text, n, take_source, NULL);
        free(text);
    }
    if (dir != NULL) (void)closedir(dir);
    return n_sources >= 20 ? 0 : -1;
}

static int free_sources(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_sources; i++)
        free(sources[i].bytes);
    return 0;
}

/* ---- ports of bytes */

static usc_port_result *port(const char *name, const char *bytes, size_t n,
                             usc_port_options o)
{
    usc_port_result *r;
    usc_error err;
    if (usc_port_bytes(name, bytes, n, &o, &r, &err) != USC_OK) fail_msg("%s", err.text);
    return r;
}

/* The port of `bytes` is `wanted`. */
static void give(const char *what, const char *name, const char *bytes, size_t n,
                 const char *wanted, size_t n_wanted)
{
    usc_port_result *r = port(name, bytes, n, (usc_port_options){0});
    const usc_port_file *f = &r->file[0];
    if (f->after_size != n_wanted || memcmp(f->after, wanted, n_wanted) != 0)
        fail_msg("%s, %s: %zu bytes, not %zu: %s", name, what, f->after_size, n_wanted,
                 f->after);
    usc_port_free(r);
}

/* With \r before each newline that has none. */
static char *with_crlf(const char *bytes, size_t n, size_t *size)
{
    char *out = malloc(2 * n + 1);
    assert_non_null(out);
    *size = 0;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n' && (i == 0 || bytes[i - 1] != '\r')) out[(*size)++] = '\r';
        out[(*size)++] = bytes[i];
    }
    return out;
}

static char *joined(const char *a, size_t n_a, const char *b, size_t n_b)
{
    char *out = malloc(n_a + n_b + 1);
    assert_non_null(out);
    if (n_a > 0) memcpy(out, a, n_a);
    if (n_b > 0) memcpy(out + n_a, b, n_b);
    out[n_a + n_b] = '\0';
    return out;
}

static bool is_plain(const source *s)
{
    return memchr(s->bytes, '\r', s->n) == NULL && memchr(s->bytes, '\0', s->n) == NULL &&
           (unsigned char)s->bytes[0] < 0x80;
}

static bool ends_in(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n >= m && strcmp(name + n - m, ending) == 0;
}

static void test_line_ends_stay(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_sources; i++) {
        size_t n, m;
        if (!is_plain(&sources[i]) || ends_in(sources[i].name, ".ipynb")) continue;
        usc_port_result *r =
            port(sources[i].name, sources[i].bytes, sources[i].n, (usc_port_options){0});
        char *before = with_crlf(sources[i].bytes, sources[i].n, &n);
        char *after = with_crlf(r->file[0].after, r->file[0].after_size, &m);
        give("CRLF", sources[i].name, before, n, after, m);
        free(before);
        free(after);
        usc_port_free(r);
    }
}

static void test_marks_and_latin_stay(void **state)
{
    static const char mark[] = "\xEF\xBB\xBF", cxx[] = "\n// caf\xe9\n",
                      python[] = "\n# caf\xe9\n";
    (void)state;
    for (size_t i = 0; i < n_sources; i++) {
        const source *s = &sources[i];
        if (!is_plain(s) || ends_in(s->name, ".ipynb") || ends_in(s->name, ".txt"))
            continue;
        usc_port_result *r = port(s->name, s->bytes, s->n, (usc_port_options){0});
        const char *tail = ends_in(s->name, ".py") ? python : cxx;
        const usc_port_file *f = &r->file[0];
        const bool ends = f->n_left == 0 || strcmp(f->left[0].construct, "unended") != 0;
        char *before = joined(mark, 3, s->bytes, s->n);
        char *after = joined(mark, 3, f->after, f->after_size);
        give("a mark", s->name, before, s->n + 3, after, f->after_size + 3);
        free(before);
        free(after);
        before = joined(s->bytes, s->n, tail, strlen(tail));
        after = joined(f->after, f->after_size, tail, strlen(tail));
        if (ends)
            give("Latin-1", s->name, before, s->n + strlen(tail), after,
                 f->after_size + strlen(tail));
        free(before);
        free(after);
        usc_port_free(r);
    }
}

static void test_what_is_no_text_stays_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < n_sources; i++) {
        const source *s = &sources[i];
        char *wide = malloc(2 * s->n + 2);
        assert_non_null(wide);
        for (int big = 0; big < 2; big++) {
            wide[big] = '\xff';
            wide[1 - big] = '\xfe';
            for (size_t k = 0; k < s->n; k++) {
                wide[2 + 2 * k + (size_t)big] = s->bytes[k];
                wide[2 + 2 * k + (size_t)(1 - big)] = '\0';
            }
            give("UTF-16", s->name, wide, 2 * s->n + 2, wide, 2 * s->n + 2);
        }
        free(wide);
        char *zero = joined(s->bytes, s->n, "\0x", 2);
        give("a zero", s->name, zero, s->n + 2, zero, s->n + 2);
        free(zero);
    }
}

/* ---- mutated files */

static uint64_t seed = 7;

static size_t draw(size_t n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (size_t)(seed >> 33) % n;
}

/* A source with some bytes swapped for what readers stumble over, some doubled, some cut
 * off. */
static source mutated(void)
{
    static const char odd[] = "\"'\\\n\r{}()[]#/*R<>f:%\0\xff\xe9!";
    const source *from = &sources[draw(n_sources)];
    source s = *from;
    s.bytes = joined(from->bytes, from->n, from->bytes, draw(2) == 0 ? 0 : from->n);
    if (strlen(s.bytes) > from->n) s.n = 2 * from->n;
    for (size_t k = draw(12); k > 0; k--)
        s.bytes[draw(s.n)] = draw(2) == 0 ? odd[draw(sizeof odd)] : s.bytes[draw(s.n)];
    if (draw(4) == 0) s.n = draw(s.n) + 1;
    return s;
}

static void test_twice_is_once(void **state)
{
    (void)state;
    for (int i = 0; i < n_files; i++) {
        const uint64_t now = seed;
        source s = mutated();
        const usc_port_options o = {.target = (usc_port_target)draw(USC_N_PORT_TARGETS),
                                    .diff = true,
                                    .comments = draw(2) == 0,
                                    .rename_own = draw(2) == 0};
        usc_port_result *first = port(s.name, s.bytes, s.n, o);
        const usc_port_file *f = &first->file[0];
        usc_port_result *second = port(s.name, f->after, f->after_size, o);
        if (second->n_changes != 0)
            fail_msg("seed %llu, %s to %s: %s", (unsigned long long)now, s.name,
                     usc_port_target_text(o.target), second->file[0].diff);
        usc_port_free(second);
        usc_port_free(first);
        free(s.bytes);
    }
}

enum { IN_FOLDER = 50 };

/* Files of one folder, ported in place and taken back. */
static void go_and_come_back(source *files, int n)
{
    char path[1024], root[600];
    usc_port_result *r;
    usc_error err;
    int64_t n_back;
    (void)snprintf(root, sizeof root, "%s/back", folder);
    usc_folder_remove(root);
    assert_int_equal(mkdir(root, 0777), 0);
    for (int i = 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%s/%d%.200s", root, i, files[i].name);
        assert_true(bundle_write(path, files[i].bytes, files[i].n));
    }
    const usc_port_options o = {.in_place = true,
                                .target = (usc_port_target)draw(USC_N_PORT_TARGETS),
                                .comments = draw(2) == 0,
                                .rename_own = draw(2) == 0};
    if (usc_port_tree(root, &o, &r, &err) != USC_OK) fail_msg("%s", err.text);
    const bool any = r->n_changed > 0 || r->n_renamed > 0;
    usc_port_free(r);
    if (usc_port_revert(root, &n_back, &err) != (any ? USC_OK : USC_E_NOT_FOUND))
        fail_msg("%s", err.text);
    for (int i = 0; i < n; i++) {
        size_t size;
        (void)snprintf(path, sizeof path, "%s/%d%.200s", root, i, files[i].name);
        char *bytes = bundle_read(path, &size);
        assert_non_null(bytes);
        assert_int_equal(size, files[i].n);
        assert_memory_equal(bytes, files[i].bytes, size);
        free(bytes);
    }
}

static void test_the_way_back_gives_every_byte(void **state)
{
    (void)state;
    for (int done = 0; done < n_files; done += IN_FOLDER) {
        source files[IN_FOLDER];
        for (int i = 0; i < IN_FOLDER; i++)
            files[i] = mutated();
        go_and_come_back(files, IN_FOLDER);
        for (int i = 0; i < IN_FOLDER; i++)
            free(files[i].bytes);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_ends_stay),
        cmocka_unit_test(test_marks_and_latin_stay),
        cmocka_unit_test(test_what_is_no_text_stays_whole),
        cmocka_unit_test(test_twice_is_once),
        cmocka_unit_test(test_the_way_back_gives_every_byte),
    };
    if (argc == 2) n_files = (int)strtol(argv[1], NULL, 10);
    (void)snprintf(folder, sizeof folder, "/tmp/ulpscope-mutated-%d", (int)getpid());
    if (mkdir(folder, 0777) != 0) return 2;
    const int failed = cmocka_run_group_tests(tests, read_sources, free_sources);
    usc_folder_remove(folder);
    return failed;
}
