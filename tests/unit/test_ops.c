// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/ops.h: kinds of operators, what is wrong with an entry, by line and column,
// and C++ that is the same for the same input.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <ulpscope/x/ops.h>

#include "base/folder.h"

#define NATIVE USC_TEST_DATA "/ops/native.yaml"

static char folder[256];

static const char *in_folder(const char *name)
{
    static char path[4][512];
    static int next;
    next = (next + 1) % 4;
    (void)snprintf(path[next], sizeof path[0], "%s/%s", folder, name);
    return path[next];
}

static const char *put(const char *name, const char *text)
{
    const char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
    return path;
}

static char *get(const char *name)
{
    static char text[2][1 << 16];
    static int next;
    next = !next;
    FILE *f = fopen(in_folder(name), "rb");
    assert_non_null(f);
    text[next][fread(text[next], 1, sizeof text[0] - 1, f)] = '\0';
    (void)fclose(f);
    return text[next];
}

static usc_ops_result *check(const char *yaml, usc_ops_options o)
{
    usc_ops_result *r;
    usc_error err = {0};
    o.native = NATIVE;
    const usc_status st = usc_ops_check(put("ops.yaml", yaml), &o, &r, &err);
    if (st != USC_OK) fail_msg("%s", err.text);
    return r;
}

/* ---- kinds */

static void test_kinds(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        usc_ops_kind kind;
    } cases[] = {
        {"- func: tril\n- func: tril_\n- func: tril.out\n", USC_OPS_LEGACY},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  dispatch:\n"
         "    PrivateUse1: Tril\n",
         USC_OPS_LEGACY_META},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  structured_inherits: Own\n"
         "  dispatch: {PrivateUse1: Tril}\n",
         USC_OPS_CUSTOMIZED},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  precomputed:\n"
         "  - diagonal -> int var\n  dispatch: {PrivateUse1: Tril}\n",
         USC_OPS_CUSTOMIZED},
        {"- func: add.Tensor\n  dispatch: {PrivateUse1: A}\n- func: add_.Tensor\n"
         "  dispatch: {PrivateUse1: B}\n- func: add.out\n  structured: false\n"
         "  dispatch: {PrivateUse1: C}\n",
         USC_OPS_UNSTRUCTURED},
        {"- func: add.Tensor\n  structured_delegate: none\n"
         "  dispatch: {PrivateUse1: A}\n",
         USC_OPS_UNSTRUCTURED},
        {"- func: tril\n  dispatch: {QuantizedPrivateUse1: Q}\n", USC_OPS_UNSTRUCTURED},
        {"- func: view_as_real\n  dispatch: {PrivateUse1: view_as_real}\n",
         USC_OPS_FUNCTION_LEGACY},
        {"- func: view_as_real\n", USC_OPS_FUNCTION_LEGACY},
        {"- func: nonzero\n  dispatch: {PrivateUse1: Nonzero}\n", USC_OPS_FUNCTION},
        {"- func: nonzero(Tensor self) -> Tensor\n  dispatch: {PrivateUse1: N}\n",
         USC_OPS_FUNCTION},
        {"- func: mine::f(Tensor x) -> Tensor\n  dispatch: {PrivateUse1: F}\n"
         "  backward: {x: grad * x}\n",
         USC_OPS_NEW},
        {"backend: PrivateUse1\ncpp_namespace: own\nsupported:\n- nonzero\n- add.out\n",
         USC_OPS_FUNCTION},
        {"- func: add.Tensor\n  structured: false\n  dispatch: {PrivateUse1: A}\n",
         USC_OPS_UNSTRUCTURED},
        {"- func: mine::__ior__(Tensor(a!) x) -> Tensor(a!)\n"
         "  dispatch: {PrivateUse1: Or}\n",
         USC_OPS_NEW},
        {"- func: many\n  dispatch: {PrivateUse1: Many}\n  tags: core\n",
         USC_OPS_FUNCTION},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_ops_result *r = check(cases[i].yaml, (usc_ops_options){0});
        if (r->n_problems > 0) fail_msg("case %zu: %s", i, r->problem[0].text);
        assert_true(r->n > 0);
        if (r->op[0].kind != cases[i].kind)
            fail_msg("case %zu is %s", i, usc_ops_kind_text(r->op[0].kind));
        usc_ops_free(r);
    }
}

/* ---- what is wrong */

static void test_problems(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        int64_t line, column;
        const char *text;
    } cases[] = {
        {"- func: trill\n", 1, 9, "no operator 'trill'; did you mean 'tril'"},
        {"- func: add.Tensr\n", 1, 9, "did you mean 'add.Tensor'"},
        {"- func: _foreach_abs.out\n", 1, 9, "torch generates _foreach_abs.out"},
        {"- func: nonzero\n  dispatch: {PrivateUs1: N}\n", 2, 13,
         "no key 'PrivateUs1' of a device; did you mean 'PrivateUse1'"},
        {"- func: nonzero\n  dispach: {PrivateUse1: N}\n", 2, 3,
         "no field 'dispach'; did you mean 'dispatch'"},
        {"- func: nonzero(Tensor self, int k) -> Tensor\n", 1, 9,
         "nonzero is (Tensor self, int k) -> Tensor here, and (Tensor self) -> Tensor"},
        {"- func: nonzer0(Tensor self) -> Tensor\n", 1, 9, "a name space of its own"},
        {"- func: mine::f(Tensor) -> Tensor\n  dispatch: {PrivateUse1: F}\n", 1, 9,
         "an argument is a type and a name"},
        {"- func: mine::f(Matrix x) -> Tensor\n  dispatch: {PrivateUse1: F}\n", 1, 9,
         "no type 'Matrix' for argument 'x'"},
        {"- func: mine::f(Tensor x) -> Matrix\n  dispatch: {PrivateUse1: F}\n", 1, 9,
         "no type 'Matrix' for what f returns"},
        {"- func: mine::f(Tensor x) -> Tensor\n", 1, 9, "has no kernel"},
        {"- func: nonzero\n", 1, 9, "no kernel of nonzero for all devices"},
        {"- func: matmul\n", 1, 9, "torch makes matmul of other operators"},
        {"- func: nonzero\n  structured: True\n  dispatch: {PrivateUse1: N}\n", 1, 9,
         "not structured in torch"},
        {"- func: view_as_real\n- func: view_as_real\n", 2, 9,
         "stands on line 1 already"},
        {"- func: tril\n- func: tril.out\n", 1, 9, "half defined: tril_ is missing"},
        {"- func: tril.out\n", 1, 9, "half defined: tril, tril_ are missing"},
        {"- func: tril\n  structured: True\n- func: tril_\n- func: tril.out\n", 1, 9,
         "'structured' is said at tril.out"},
        {"- func: tril\n  dispatch: {PrivateUse1: T}\n- func: tril_\n- func: tril.out\n",
         2, 27, "kernel of a structured group stands at tril.out"},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  precomputed:\n"
         "  - diagnal -> int var\n  dispatch: {PrivateUse1: T}\n",
         5, 5, "'diagnal' is no argument of tril.out"},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  precomputed:\n"
         "  - diagonal -> var\n  dispatch: {PrivateUse1: T}\n",
         5, 5, "'dim -> int dim' is needed"},
        {"- func: tril\n- func: tril_\n- func: tril.out\n  structured_inherits: Own\n", 3,
         9, "shapes of its own and no kernel"},
        {"- func: add.Tensor\n- func: add_.Tensor\n- func: add.out\n", 3, 9,
         "no kernel of add.out behind a dispatch stub"},
        {"- func: add.Tensor\n- func: add_.Tensor\n- func: add.out\n  structured: "
         "false\n",
         1, 9, "made unstructured and has no kernel"},
        {"- func: nonzero\n  device_guard: yes please\n  dispatch: {PrivateUse1: N}\n", 2,
         17, "device_guard is True or False"},
        {"- func: nonzero\n  device_check: Same\n  dispatch: {PrivateUse1: N}\n", 2, 17,
         "device_check is ExactSame or NoCheck"},
        {"- func: mine::f(Tensor x) -> Tensor\n  dispatch: {PrivateUse1: F}\n"
         "  backward: {y: grad}\n",
         3, 14, "'y' is no argument of f"},
        {"- func: nonzero\n  dispatch: {PrivateUse1: N}\n  backward: {self: grad}\n", 3,
         13, "of a new operator that returns one tensor"},
        {"- nonzero\n", 1, 3, "an entry begins with '- func: NAME'"},
        {"nonzero\n", 1, 1, "a list of operators is needed"},
        {"", 1, 1, "a list of operators is needed"},
        {"backend: XLA\nsupported: [nonzero]\n", 1, 10, "backend is PrivateUse1"},
        {"backend: PrivateUse1\nsuported: [nonzero]\n", 2, 1, "did you mean 'supported'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_ops_result *r = check(cases[i].yaml, (usc_ops_options){0});
        if (r->n_problems == 0) fail_msg("case %zu: nothing is wrong", i);
        size_t k = 0;
        while (k < r->n_problems && (r->problem[k].line != cases[i].line ||
                                     r->problem[k].column != cases[i].column ||
                                     strstr(r->problem[k].text, cases[i].text) == NULL))
            k++;
        const usc_ops_problem *p = &r->problem[0];
        if (k == r->n_problems)
            fail_msg("case %zu: %lld:%lld: %s", i, (long long)p->line,
                     (long long)p->column, p->text);
        usc_ops_free(r);
    }
}

static void test_no_yaml(void **state)
{
    (void)state;
    static const struct {
        const char *yaml;
        const char *text;
    } cases[] = {
        {"- func: a\n\tdispatch: b\n", ":2:1: found a tab character"},
        {"- func: @a\n", ":1:9: no value can begin so"},
        {"- func: &x a\n", ":1:9: anchors, aliases and tags"},
        {"- func: !!str a\n", ":1:9: anchors, aliases and tags"},
        {"- func: a\n  func: b\n", ":2:3: 'func' stands twice here"},
        {"- func: [a\n", "ops.yaml:2:1:"},
        {"- a\n---\n- b\n", ":3:1: a second document"},
        {"[[[[[[[[[[[[[[[[[[[[[[a]]]]]]]]]]]]]]]]]]]]]]\n", "lists and maps too deep"},
        {"{[a]: b}\n", "a key is a text"},
    };
    usc_ops_result *r;
    usc_error err;
    const usc_ops_options o = {.native = NATIVE};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = put("ops.yaml", cases[i].yaml);
        assert_int_equal(usc_ops_check(path, &o, &r, &err), USC_E_CORRUPT);
        assert_null(r);
        if (strstr(err.text, cases[i].text) == NULL)
            fail_msg("case %zu: %s", i, err.text);
    }
    assert_int_equal(usc_ops_check(in_folder("none"), &o, &r, &err), USC_E_NOT_FOUND);
    char *large = malloc((9U << 20) + 1);
    assert_non_null(large);
    memset(large, '#', 9U << 20);
    large[9U << 20] = '\0';
    assert_int_equal(usc_ops_check(put("large", large), &o, &r, &err), USC_E_RANGE);
    free(large);
}

static void test_lenient(void **state)
{
    (void)state;
    usc_ops_result *r = check("- func: of_another_torch\n- func: view_as_real\n",
                              (usc_ops_options){.lenient = true});
    assert_int_equal(r->n_problems, 0);
    assert_int_equal(r->n, 1);
    assert_int_equal(r->n_left_out, 1);
    assert_string_equal(r->left_out[0].text, "of_another_torch");
    usc_ops_free(r);
}

static void test_sources(void **state)
{
    (void)state;
    const char *source = put("kernels.cpp", "Tensor Nonzero(const Tensor &) {}\n"
                                            "// MyTrilled\n");
    const usc_ops_options o = {.source = &source, .n_source = 1};
    usc_ops_result *r = check("- func: nonzero\n  dispatch: {PrivateUse1: Nonzero}\n", o);
    assert_int_equal(r->n_problems, 0);
    usc_ops_free(r);
    r = check("- func: tril\n- func: tril_\n- func: tril.out\n"
              "  dispatch: {PrivateUse1: MyTril}\n",
              o);
    assert_int_equal(r->n_problems, 1);
    assert_string_equal(r->problem[0].text,
                        "no source defines the kernel MyTril of tril.out");
    usc_ops_free(r);
}

/* ---- C++ */

static void generate(const char *yaml, const char *to)
{
    usc_ops_result *r;
    usc_error err = {0};
    const usc_ops_options o = {.native = NATIVE};
    const usc_status st =
        usc_ops_generate(put("ops.yaml", yaml), in_folder(to), &o, &r, &err);
    if (st != USC_OK) fail_msg("%s", err.text);
    if (r->n_problems > 0) fail_msg("%s", r->problem[0].text);
    usc_ops_free(r);
}

static void test_signatures(void **state)
{
    (void)state;
    static const char *const wanted[] = {
        "struct structured_Cat : public at::meta::structured_cat {\n"
        "    void impl(const at::ITensorListRef &tensors, int64_t dim, int64_t valid, "
        "at::MemoryFormat memory_format, bool last, const at::Tensor &out);",
        "::std::vector<at::Tensor> Many(const ::std::optional<at::Tensor> &weight, const "
        "c10::List<::std::optional<at::Tensor>> &indices, at::IntArrayRef size, "
        "at::OptionalIntArrayRef shape, ::std::optional<at::ArrayRef<double>> scales, "
        "::std::array<bool, 3> mask, ::usc_ops::text mode, const "
        "::std::optional<at::Scalar> &low, ::std::optional<at::ScalarType> dtype, "
        "::std::optional<at::Generator> generator);",
        "at::Tensor &Sum(at::Tensor &x, int64_t n);",
    };
    static const char *const bodies[] = {
        "    op.impl(tensors, computed.dim, computed.valid, computed.memory_format, "
        "computed.last, op.maybe_get_output(0));\n",
        "    return at::native::view_as_real(self);\n",
        "TORCH_LIBRARY_IMPL(mine, SparsePrivateUse1, m)",
        "m.def(R\"(sum_.of(Tensor(a!) x, SymInt n) -> Tensor(a!))\");",
    };
    generate("- func: cat\n- func: cat.out\n  dispatch: {PrivateUse1: Cat}\n"
             "- func: many\n  dispatch: {PrivateUse1: Many}\n- func: view_as_real\n"
             "- func: mine::sum_.of(Tensor(a!) x, SymInt n) -> Tensor(a!)\n"
             "  dispatch: {'PrivateUse1, SparsePrivateUse1': Sum}\n",
             "made");
    const char *header = get("made/sim_ops.h");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (strstr(header, wanted[i]) == NULL) fail_msg("no %s\n%s", wanted[i], header);
    const char *source = get("made/sim_ops.cpp");
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
        if (strstr(source, bodies[i]) == NULL) fail_msg("no %s\n%s", bodies[i], source);
}

static void test_the_same_bytes(void **state)
{
    (void)state;
    static const char *const files[] = {"sim_ops.h", "sim_ops.cpp", "sources.txt"};
    static const char yaml[] = "- func: topk\n- func: topk.values\n"
                               "  dispatch: {PrivateUse1: Topk}\n- func: view_as_real\n";
    char a[64], b[64];
    generate(yaml, "one");
    generate(yaml, "two");
    for (int i = 0; i < 3; i++) {
        (void)snprintf(a, sizeof a, "one/%s", files[i]);
        (void)snprintf(b, sizeof b, "two/%s", files[i]);
        assert_string_equal(get(a), get(b));
    }
}

/* ---- what is said of an operator */

static const char *said(const char *op, usc_status wanted)
{
    static char text[4096];
    usc_error err = {0};
    FILE *f = fmemopen(text, sizeof text, "wb");
    assert_non_null(f);
    const usc_status st = usc_ops_why(op, NATIVE, f, &err);
    (void)fclose(f);
    assert_int_equal(st, wanted);
    if (st != USC_OK) (void)snprintf(text, sizeof text, "%s", err.text);
    return text;
}

static void test_why(void **state)
{
    (void)state;
    assert_non_null(strstr(said("tril", USC_OK), "group tril, tril_, tril.out"));
    assert_non_null(strstr(said("aten::matmul", USC_OK), "composite"));
    assert_non_null(strstr(said("view_as_real", USC_OK), "'PrivateUse1: view_as_real'"));
    assert_non_null(strstr(said("nonzero", USC_OK), "write: a function"));
    assert_non_null(strstr(said("trill", USC_E_NOT_FOUND), "did you mean 'tril'"));
}

static void test_a_skeleton_is_complete(void **state)
{
    (void)state;
    static const char *const ops[] = {"tril_", "nonzero", "tril", "view_as_real"};
    char yaml[2048], cxx[4096];
    usc_error err = {0};
    FILE *y = fmemopen(yaml, sizeof yaml, "wb"), *c = fmemopen(cxx, sizeof cxx, "wb");
    assert_true(y != NULL && c != NULL);
    assert_int_equal(usc_ops_skeleton(ops, 4, NATIVE, false, y, c, &err), USC_OK);
    (void)fclose(y);
    (void)fclose(c);
    usc_ops_result *r = check(yaml, (usc_ops_options){0});
    assert_int_equal(r->n_problems, 0);
    assert_int_equal(r->n, 5);
    usc_ops_free(r);
    assert_non_null(strstr(cxx, "TORCH_IMPL_FUNC(Tril)(const at::Tensor &self, int64_t "
                                "diagonal, const at::Tensor &out)"));
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/usc_ops_XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    usc_folder_remove(folder);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_problems),
        cmocka_unit_test(test_no_yaml),
        cmocka_unit_test(test_lenient),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_the_same_bytes),
        cmocka_unit_test(test_why),
        cmocka_unit_test(test_a_skeleton_is_complete),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
