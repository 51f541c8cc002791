// SPDX-License-Identifier: Apache-2.0
// Kernels' files as a compiler of C++ takes them (usc_port_options.lower): what changes, what
// stays, what is refused. Lines stay where they are.
#include <ulpscope/x/port.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct row {
    const char *text, *lowered; /* NULL: as it is */
    const char *refused;        /* "2: inline PTX"; NULL: nothing */
} row;

static const row rows[] = {
    {"k<<<g, b>>>(x);", "USC_GRID_LAUNCH((k), g, b)(x);", NULL},
    {"k<<<g, b, 4 * n, s>>>(x);", "USC_GRID_LAUNCH((k), g, b, 4 * n, s)(x);", NULL},
    {"a::k<T, 2> <<<g,\n b>>>(x)", "USC_GRID_LAUNCH((a::k<T, 2> ), g,\n b)(x)", NULL},
    {"k<A<B<int>>><< <1, 2> >>(x)", "USC_GRID_LAUNCH((k<A<B<int>>>), 1, 2)(x)", NULL},
    {"k<I<int, (4 >> 1)>::value><<<1, f<2>(3)>>>(x)",
     "USC_GRID_LAUNCH((k<I<int, (4 >> 1)>::value>), 1, f<2>(3))(x)", NULL},
    {"#define L(k, ...) \\\n k<<<1, 2>>>(__VA_ARGS__)\n",
     "#define L(k, ...) \\\n USC_GRID_LAUNCH((k), 1, 2)(__VA_ARGS__)\n", NULL},
    {"(kernels[i])<<<1, 2>>>(x)", "USC_GRID_LAUNCH(((kernels[i])), 1, 2)(x)", NULL},
    {"a << b << c; s << \"k<<<1, 2>>>(x)\"; // k<<<1, 2>>>(x)", NULL, NULL},
    {"__global__ void k() { extern __shared__ float s[]; }",
     "__global__ void k() { float *s = static_cast<float *>(::usc_grid_now.shared); }",
     NULL},
    {"void k() { extern __shared__ __align__(16) unsigned char s[]; }",
     "void k() { unsigned char *s = static_cast<unsigned char *>(::usc_grid_now.shared); "
     "}",
     NULL},
    {"namespace a { extern __shared__ float s[]; }",
     "namespace a { static const ::usc_grid_cxx::dynamic_shared<float> s; }", NULL},
    {"extern int s[];", NULL, NULL},
    {"__device__ __noinline__ int f(); __attribute__((__noinline__)) int g();",
     "__device__ __attribute__((noinline)) int f(); __attribute__((__noinline__)) int "
     "g();",
     NULL},
    {"#ifdef __CUDACC__\n#endif\n", "#ifdef __SIMCC__\n#endif\n", NULL},
    {"\n__device__ void f() { asm volatile(\"x\"); }", NULL, "2: inline PTX"},
    {"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\nvoid f() { asm(\"x\"); }\n"
     "#else\n#endif\n",
     NULL, NULL},
    {"#ifndef __CUDA_ARCH__\nvoid f() { asm(\"x\"); }\n#endif\n", NULL, "2: inline PTX"},
    {"#ifdef __CUDA_ARCH__\n__device__ void f(float *);\n#if (__CUDA_ARCH__ < "
     "200)\n#else\n"
     "#endif\n#endif\n",
     "#ifdef __SIMCC__\n__device__ void f(float *);\n#if (__CUDA_ARCH__ < 200)\n#else\n"
     "#endif\n#endif\n",
     NULL},
    {"#if defined(__CUDA_ARCH__)\n__device__ void f() { asm(\"x\"); }\n#endif\n",
     "#if defined(__SIMCC__)\n__device__ void f() { asm(\"x\"); }\n#endif\n",
     "2: inline PTX"},
    {"#ifdef __CUDA_ARCH__\n__device__ void f();\n#else\nvoid f();\n#endif\n", NULL,
     NULL},
    {"#ifdef __CUDA_ARCH__\n  x = 1;\n#endif\n", NULL, NULL},
    {"f(at::Half(x).operator __half(), y); operator __half() const;",
     "f(at::Half(x).operator float(), y); operator __half() const;", NULL},
    {"return (void *)a::k<T, 1>;", "return USC_GRID_AS_VOID(a::k<T, 1>);", NULL},
    {"s = {(const void *)&k<I<2>>, 1};", "s = {USC_GRID_AS_VOID(&k<I<2>>), 1};", NULL},
    {"void g(void *) const; int n = (void *)p + 1; f((void *)p[2], sizeof(void *));",
     NULL, NULL},
    {"wmma::fragment<int> a;", NULL, "1: wmma"},
    {"float f(cudaTextureObject_t t);", NULL, "1: texture"},
    {"__global__ void k() {\n  j<<<1, 2>>>(3);\n}", NULL, "2: dynamic parallelism"},
    {"__device__ int f();\nvoid g() { k<<<1, 2>>>(); }",
     "__device__ int f();\nvoid g() { USC_GRID_LAUNCH((k), 1, 2)(); }", NULL},
    {"void k() { cg::this_grid().sync(); }", NULL, "1: grid-wide synchronisation"},
};

static void test_rows(void **state)
{
    (void)state;
    const usc_port_options options = {.target = USC_PORT_SIM, .lower = true};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        usc_port_result *result;
        usc_error err;
        assert_int_equal(usc_port_bytes("k.cu", rows[i].text, strlen(rows[i].text),
                                        &options, &result, &err),
                         USC_OK);
        assert_int_equal(result->n_files, 1);
        const usc_port_file *f = &result->file[0];
        const char *wanted = rows[i].lowered != NULL ? rows[i].lowered : rows[i].text;
        assert_string_equal(f->after, wanted);
        char refused[64] = "";
        if (f->n_left > 0)
            (void)snprintf(refused, sizeof refused, "%lld: %s",
                           (long long)f->left[0].line, f->left[0].construct);
        assert_string_equal(refused, rows[i].refused != NULL ? rows[i].refused : "");
        usc_port_free(result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
