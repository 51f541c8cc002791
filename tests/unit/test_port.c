// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/port.h: what real sources hold, ported (tests/port); tokens that tile any
// file; twice is once; the way back; what is refused.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include "port_bundle.h"

#include <cmocka.h>

#include "port/port_token.h"

static char folder[512]; /* of this run */

static const char *in_folder(const char *name)
{
    static char path[4][1024];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[0], "%s/%s", folder, name);
    return path[next];
}

static void write_text(const char *name, const char *text)
{
    assert_true(bundle_write(in_folder(name), text, strlen(text)));
}

static bool has_text(const char *name, const char *text)
{
    size_t n;
    char *bytes = bundle_read(in_folder(name), &n);
    const bool same = bytes != NULL && n == strlen(text) && memcmp(bytes, text, n) == 0;
    free(bytes);
    return same;
}

/* ---- the corpus */

static void for_each_case(void (*use)(const char *path, const char *text, size_t n))
{
    char path[2048];
    int n_cases = 0;
    DIR *dir = opendir(USC_TEST_DATA "/port");
    assert_non_null(dir);
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        size_t n;
        if (strstr(e->d_name, ".case") == NULL) continue;
        (void)snprintf(path, sizeof path, USC_TEST_DATA "/port/%s", e->d_name);
        char *text = bundle_read(path, &n);
        assert_non_null(text);
        use(path, text, n);
        free(text);
        n_cases++;
    }
    (void)closedir(dir);
    assert_true(n_cases >= 9);
}

static void give_what_they_say(const char *path, const char *text, size_t n)
{
    usc_line today = {0};
    bundle_today(text, n, in_folder("case"), &today);
    if (today.n != n || memcmp(today.text, text, n) != 0) {
        size_t at = 0;
        while (at < n && at < today.n && today.text[at] == text[at])
            at++;
        fail_msg("%s: byte %zu: now %.60s", path, at, today.text + at);
    }
    usc_line_free(&today);
}

static void test_cases(void **state)
{
    (void)state;
    for_each_case(give_what_they_say);
}

static void rewrite_one(const char *path, const char *text, size_t n)
{
    usc_line today = {0};
    bundle_today(text, n, in_folder("case"), &today);
    assert_true(bundle_write(path, today.text, today.n));
    usc_line_free(&today);
}

/* ---- properties */

typedef void cutter(const char *text, size_t n, usc_port_tokens *out);

static void tile(cutter *cut, const char *text, size_t n)
{
    usc_port_tokens tokens = {0};
    char *exact = malloc(n + 1); /* a sanitizer sees what reads behind it */
    assert_non_null(exact);
    memcpy(exact, text, n);
    char *shrunk = realloc(exact, n > 0 ? n : 1);
    cut(shrunk, n, &tokens);
    assert_false(tokens.failed);
    size_t at = 0;
    for (size_t i = 0; i < tokens.n; i++) {
        assert_int_equal(tokens.token[i].start, at);
        assert_true(tokens.token[i].end > at);
        at = tokens.token[i].end;
    }
    assert_int_equal(at, n);
    usc_port_tokens_free(&tokens);
    free(shrunk);
}

static uint64_t seed = 1;

static size_t draw(size_t n)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (size_t)(seed >> 33) % n;
}

/* Swaps bytes of a text for what tokenizers stumble over. */
static void mutate(char *text, size_t n)
{
    static const char odd[] = "\"'\\\n\r{}()#/*R<>f:\0\xff!";
    for (size_t k = draw(8) + 1; k > 0; k--)
        text[draw(n)] = draw(2) == 0 ? odd[draw(sizeof odd)] : text[draw(n)];
}

static bool comments; /* of port_bytes */

static usc_port_result *port_bytes(const char *name, const char *text, size_t n,
                                   usc_port_target target)
{
    const usc_port_options o = {
        .target = target, .diff = true, .comments = comments, .rename_own = comments};
    usc_port_result *r;
    usc_error err;
    if (usc_port_bytes(name, text, n, &o, &r, &err) != USC_OK) fail_msg("%s", err.text);
    return r;
}

/* Ported again, nothing changes. */
static void be_once(const char *name, const char *text, size_t n)
{
    for (usc_port_target t = 0; t < USC_N_PORT_TARGETS; t++) {
        usc_port_result *first = port_bytes(name, text, n, t);
        const usc_port_file *f = &first->file[0];
        usc_port_result *second = port_bytes(name, f->after, f->after_size, t);
        if (second->n_changes != 0)
            fail_msg("seed %llu, %s to %s: %s", (unsigned long long)seed, name,
                     usc_port_target_text(t), second->file[0].diff);
        usc_port_free(second);
        usc_port_free(first);
    }
}

static void hold_properties(const char *path, const char *text, size_t n)
{
    (void)path;
    char *copy = malloc(n + 1);
    assert_non_null(copy);
    for (int k = 0; k < 1000; k++) {
        memcpy(copy, text, n + 1);
        if (k > 0) mutate(copy, n);
        tile(usc_port_cut_cxx, copy, n);
        tile(usc_port_cut_python, copy, n);
        if (k > 40) continue;
        comments = k % 2 != 0;
        be_once("x.cu", copy, n);
        be_once("x.py", copy, n);
        be_once("x.ipynb", copy, n);
    }
    comments = false;
    free(copy);
}

static void test_tokens_tile_and_twice_is_once(void **state)
{
    (void)state;
    for_each_case(hold_properties);
}

/* ---- kinds of tokens, a letter each */

static char letter_of(const usc_port_token *t)
{
    static const char letters[] = {' ', '\n', 'c', 'n', '1', 's',
                                   'h', '(',  'm', ')', '.'};
    return letters[t->kind];
}

static void test_kinds(void **state)
{
    static const struct {
        bool python;
        const char *text, *kinds;
    } rows[] = {
        {false, "a::b->c", "n.n.n"},
        {false, "#include <a b>\n<a>", ".n h\n.n."},
        {false, "# include \"x\"", ". n h"},
        {false, "R\"q(\")\" )q\" u8\"x\" L'c'", "s s s"},
        {false, "1'000.5e+3f-2 'a'", "1.1 s"},
        {false, "// a \\\n b\nc", "c\nn"},
        {false, "ab\\\ncd", "n"},
        {false, "ab \\\n cd", "n n"},
        {false, "\"a\\\nb\"", "s"},
        {true, "f\"a{b!r:>{w}}c\"", "(m.n.n.m.n..m)"},
        {true, "f'{x[\"a\"]}' f\"{y[\"b\"]}\"", "(.n.s..) (.n.s..)"},
        {true, "rb'x' Rb\"\"\"\n\"\"\" bu'x'", "s s ns"},
        {true, "a \\\n b # c", "n   n c"},
        {true, "f'{{x}}' f'\\N{DASH}'", "(m) (m)"},
        {true, "rf'''a\n{x}'''", "(m.n.)"},
        {true, "1_000j+.5e-3", "1.1"},
        {true, "f'{a:{b}.{c}}'", "(.n..n.m.n..)"},
        {true, "f'{(lambda x: 1)(2):3}'", "(..n n. 1..1..m.)"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_port_tokens t = {0};
        char kinds[64];
        size_t n = 0;
        (rows[i].python ? usc_port_cut_python
                        : usc_port_cut_cxx)(rows[i].text, strlen(rows[i].text), &t);
        for (; n < t.n && n < 63; n++)
            kinds[n] = letter_of(&t.token[n]);
        kinds[n] = '\0';
        if (t.open != NULL || strcmp(kinds, rows[i].kinds) != 0)
            fail_msg("%s: '%s', not '%s'", rows[i].text, kinds, rows[i].kinds);
        usc_port_tokens_free(&t);
    }
}

static void test_what_never_ends_is_named(void **state)
{
    static const char *const rows[][3] = {
        {"x.cu", "f(\"a);\ncudaFree(p);", "a text in quotes"},
        {"x.cu", "cudaFree(p); /* x", "a comment"},
        {"x.cu", "R\"(x) cudaFree(p);", "a raw text"},
        {"x.py", "torch.cuda.x()\n'''a", "a text in quotes"},
        {"x.py", "torch.cuda.x()\nf'{a", "an f-string"},
        {"x.py", "f'{a:\n'", "an f-string"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_port_result *r =
            port_bytes(rows[i][0], rows[i][1], strlen(rows[i][1]), USC_PORT_MUSA);
        assert_int_equal(r->n_changes, 0);
        assert_int_equal(r->n_left, 1);
        assert_string_equal(r->file[0].left[0].construct, "unended");
        assert_string_equal(r->file[0].left[0].excerpt, rows[i][2]);
        assert_int_equal(r->file[0].after_size, strlen(rows[i][1]));
        usc_port_free(r);
    }
}

/* Names are told apart by their bytes before any is looked up: none may be lost by it. */
static void test_every_word_that_tells_is_seen(void **state)
{
    static const char *const words[] = {
        "asm(x);",
        "__asm__(x);",
        "wmma::a;",
        "nvcuda::a;",
        "tex2D<T>(t);",
        "this_grid();",
        "texture<T> t;",
        "cudaCreateTextureObject(t);",
        "surf2Dread(s);",
        "grid_group g;",
        "__shfl_xor(x, 1);",
        "__ballot(p);",
        "__any(p);",
        "__all(p);",
        "AT_DISPATCH_FLOATING_TYPES_AND_HALF(t);",
        "x = __CUDA_ARCH__ >= 700;",
        "x = CUDA_VERSION > 1;",
        "x = CUDART_VERSION > 1;",
        "x = __CUDACC_VER_MAJOR__ > 1;",
        "#if USE_ROCM\n#endif",
        "#if __HIPCC__\n#endif",
        "#ifdef ROCM_VERSION\n#endif",
        "#ifdef __HIP_PLATFORM_AMD__\n#endif",
        "#ifdef MY_WITH_HIP\n#endif",
        "as\\\nm(x);",
        "cudnnNoSuch(x);",
        "C10_CUDA_NO_SUCH(x);",
        "AT_CUDA_NO_SUCH(x);",
        "nvrtcNoSuch(x);",
        "cutlassNoSuch(x);",
    };
    static const char *const plain[] = {"my_asm(x);", "x.wmma;",       "grid_x(1);",
                                        "thing(x);",  "text2D<T>(t);", "cudart(x);",
                                        "int tex;",   "MY_WITH_HIP;"};
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        usc_port_result *r =
            port_bytes("x.cu", words[i], strlen(words[i]), USC_PORT_MUSA);
        if (r->n_left == 0) fail_msg("nothing is left of '%s'", words[i]);
        usc_port_free(r);
    }
    for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) {
        usc_port_result *r =
            port_bytes("x.cu", plain[i], strlen(plain[i]), USC_PORT_MUSA);
        if (r->n_left != 0) fail_msg("'%s' is listed", plain[i]);
        usc_port_free(r);
    }
}

/* ---- folders */

static usc_status port(const char *source, usc_port_options o, usc_error *err)
{
    usc_port_result *r = NULL;
    const usc_status st = usc_port_tree(in_folder(source), &o, &r, err);
    usc_port_free(r);
    return st;
}

static void make_source(const char *name)
{
    char path[64];
    usc_folder_remove(in_folder(name));
    assert_int_equal(mkdir(in_folder(name), 0777), 0);
    (void)snprintf(path, sizeof path, "%s/a.cu", name);
    write_text(path, "#include \"b.cuh\"\ncudaFree(p);\n");
    (void)snprintf(path, sizeof path, "%s/b.cuh", name);
    write_text(path, "int x;\n");
    (void)snprintf(path, sizeof path, "%s/t.py", name);
    write_text(path, "x.cuda()\n");
}

static void test_in_place_and_back(void **state)
{
    const usc_port_options o = {.in_place = true};
    usc_error err;
    int64_t n;
    (void)state;
    make_source("place");
    assert_int_equal(port("place", o, &err), USC_OK);
    assert_true(has_text("place/a.mu", "#include \"b.muh\"\nmusaFree(p);\n"));
    assert_true(has_text("place/b.muh", "int x;\n"));
    assert_int_not_equal(access(in_folder("place/a.cu"), F_OK), 0);
    assert_int_equal(port("place", o, &err), USC_OK); /* nothing is left to change */
    write_text("place/t.py", "x.cuda()\n");
    assert_int_equal(port("place", o, &err), USC_E_EXISTS);
    write_text("place/t.py", "edited\n");
    assert_int_equal(usc_port_revert(in_folder("place"), &n, &err), USC_E_EXISTS);
    assert_non_null(strstr(err.text, "t.py was changed since"));
    assert_true(has_text("place/a.mu", "#include \"b.muh\"\nmusaFree(p);\n"));
    write_text("place/t.py", "x.cuda()\n"); /* the old one: as after a port cut short */
    assert_int_equal(usc_port_revert(in_folder("place"), &n, &err), USC_OK);
    assert_int_equal(n, 3);
    assert_true(has_text("place/a.cu", "#include \"b.cuh\"\ncudaFree(p);\n"));
    assert_true(has_text("place/b.cuh", "int x;\n"));
    assert_int_not_equal(access(in_folder("place/a.mu"), F_OK), 0);
    assert_int_equal(usc_port_revert(in_folder("place"), &n, &err), USC_E_NOT_FOUND);
}

static void test_what_is_refused(void **state)
{
    usc_error err;
    (void)state;
    make_source("bad");
    assert_int_equal(port("nowhere", (usc_port_options){0}, &err), USC_E_NOT_FOUND);
    usc_folder_remove(in_folder("empty"));
    assert_int_equal(mkdir(in_folder("empty"), 0777), 0);
    assert_int_equal(port("empty", (usc_port_options){0}, &err), USC_E_RANGE);
    const char *inside = in_folder("bad/out");
    assert_int_equal(port("bad", (usc_port_options){.out = inside}, &err), USC_E_ARG);
    make_source("taken");
    const char *taken = in_folder("taken");
    assert_int_equal(port("bad", (usc_port_options){.out = taken}, &err), USC_E_EXISTS);
    const char *empty = in_folder("empty");
    assert_int_equal(port("bad", (usc_port_options){.out = empty}, &err), USC_OK);
    assert_true(has_text("empty/a.mu", "#include \"b.muh\"\nmusaFree(p);\n"));
}

static void test_links_and_bytes_that_are_no_text(void **state)
{
    const char wide[] = "\xff\xfe"
                        "x\0\n\0",
               zero[] = "cudaFree(p);\0";
    usc_port_result *r;
    usc_error err;
    const usc_port_options o = {0};
    (void)state;
    make_source("odd");
    usc_folder_remove(in_folder("odd_musa"));
    assert_true(bundle_write(in_folder("odd/wide.py"), wide, sizeof wide - 1));
    assert_true(bundle_write(in_folder("odd/zero.cu"), zero, sizeof zero));
    assert_int_equal(symlink("/etc", in_folder("odd/out")), 0);
    assert_int_equal(symlink("circle", in_folder("odd/circle")), 0);
    assert_int_equal(symlink("t.py", in_folder("odd/in.py")), 0);
    write_text("odd/b.muh", "taken\n");
    assert_int_equal(usc_port_tree(in_folder("odd"), &o, &r, &err), USC_OK);
    const char *expected[] = {"its new name is taken", "a link in a circle",
                              "a link out of the source", "UTF-16", "binary"};
    size_t n = 0;
    for (size_t i = 0; i < r->n_files; i++)
        for (size_t k = 0; k < r->file[i].n_left; k++)
            assert_string_equal(r->file[i].left[k].construct, expected[n++]);
    assert_int_equal(n, 5);
    usc_port_free(r);
    char link[16] = "";
    assert_int_equal(readlink(in_folder("odd_musa/in.py"), link, sizeof link - 1), 4);
    assert_string_equal(link, "t.py");
    assert_int_not_equal(access(in_folder("odd_musa/out"), F_OK), 0);
    assert_true(has_text("odd_musa/b.muh", "taken\n"));
    assert_true(has_text("odd_musa/b.cuh", "int x;\n"));
}

static void test_page(void **state)
{
    static const char code[] = "cudaFree(p); // <b>\ncudaNew(p);\ncudaNewer<int>(p);\n";
    const usc_port_options o = {.diff = true, .dry_run = true};
    usc_port_result *r = port_bytes("a<b.cu", code, strlen(code), USC_PORT_MUSA);
    usc_error err;
    size_t n;
    FILE *f = fopen(in_folder("page.html"), "wb");
    (void)state;
    assert_non_null(f);
    assert_int_equal(usc_port_html(r, &o, f, &err), USC_OK);
    assert_int_equal(fclose(f), 0);
    char *page = bundle_read(in_folder("page.html"), &n);
    static const char *const parts[] = {
        "<h1>Port to musa</h1>", "1 changed at 1 places", "Nothing was written.",
        "a&lt;b.cu:2</a></td>",  "<h3>'cudaNew'</h3>",    "+musaFree(p); // &lt;b>",
        "give its name in --map"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (strstr(page, parts[i]) == NULL) fail_msg("%s: not in %s", parts[i], page);
    free(page);
    usc_port_free(r);
}

static void test_maps(void **state)
{
    static const struct {
        const char *map, *code, *error;
    } rows[] = {
        {"{\"mine::f\": \"mine::g\", \"cudaFree\": \"freeIt\"}", "mine::g(); freeIt(p);",
         0},
        {"{\"f\": \"g\"}", "mine::f(); musaFree(p);", 0},
        {"[]", 0, ":1: one JSON object"},
        {"{\n\"a b\": \"c\"}", 0, ":2: 'a b' cannot be mapped"},
        {"{\n\n\"a\": 1}", 0, ":3: 'a' cannot"},
        {"{\"a\": \"b\",\n\"a\": \"c\"}", 0, "line 2 of the map"},
        {"{\"a\"", 0, "line 1 of the map"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *code = "mine::f(); cudaFree(p);";
        usc_port_result *r;
        usc_error err;
        write_text("map.json", rows[i].map);
        const usc_port_options o = {.map = in_folder("map.json")};
        const usc_status st = usc_port_bytes("x.cu", code, strlen(code), &o, &r, &err);
        if (rows[i].error == NULL) {
            assert_int_equal(st, USC_OK);
            assert_string_equal(r->file[0].after, rows[i].code);
        } else {
            assert_int_equal(st, USC_E_ARG);
            if (strstr(err.text, rows[i].error) == NULL) fail_msg("%s", err.text);
        }
        usc_port_free(r);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_what_never_ends_is_named),
        cmocka_unit_test(test_every_word_that_tells_is_seen),
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_tokens_tile_and_twice_is_once),
        cmocka_unit_test(test_in_place_and_back),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_links_and_bytes_that_are_no_text),
        cmocka_unit_test(test_page),
        cmocka_unit_test(test_maps),
    };
    (void)snprintf(folder, sizeof folder, "/tmp/ulpscope-port-%d", (int)getpid());
    if (mkdir(folder, 0777) != 0) return 2;
    int failed = 0;
    if (argc == 2 && strcmp(argv[1], "--rewrite") == 0)
        for_each_case(rewrite_one);
    else
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    usc_folder_remove(folder);
    return failed;
}
