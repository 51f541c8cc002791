// SPDX-License-Identifier: Apache-2.0
// ulpscope ops: operators of a device, from YAML to C++.
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ulpscope/x/ops.h>

#include "common/cli_python.h"

enum {
    OPT_SOURCE = 256,
    OPT_INCLUDE,
    OPT_NATIVE,
    OPT_SPACE,
    OPT_LENIENT,
    OPT_JSON,
    OPT_C
};
enum { MOST_FILES = 256 };

static const cli_entry own_options[] = {
    {'o', "out", "DIR", NULL, "gen: the folder that is written"},
    {OPT_SOURCE, "source", "FILE", NULL,
     "gen, check: a file that defines kernels (.cpp, .cu); may be given again. A kernel "
     "that "
     "none of them defines is a problem"},
    {OPT_INCLUDE, "include", "FILE", NULL,
     "gen: a header that the written one includes first; may be given again"},
    {OPT_SPACE, "namespace", "NAME", NULL,
     "gen: of the kernels (default: the file's cpp_namespace, else at::sim)"},
    {OPT_LENIENT, "lenient", NULL, NULL,
     "gen, check: operators that this torch does not have are left out and listed"},
    {OPT_C, "c", NULL, NULL, "skeleton: functions of plain C (`kernel: c`)"},
    {OPT_NATIVE, "native", "FILE", NULL,
     "torch's native_functions.yaml (default: the one of the torch at hand)"},
    {OPT_JSON, "json", NULL, NULL, "gen, check: one JSON object"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_ops_page = {
    .command = "ops",
    .usage =
        "gen FILE.yaml -o DIR | check FILE.yaml | why OP... | skeleton OP... [OPTIONS]",
    .about =
        "Operators of a device, written down in YAML in the words of torch's "
        "native_functions.yaml (func, dispatch, structured, precomputed, ...; kernel: c "
        "for one in plain C), as C++ "
        "that "
        "registers them: `gen` writes sim_ops.h, with what each kernel has to be, and "
        "sim_ops.cpp, with wrappers and registrations. The schemas are those of the "
        "torch "
        "at hand, which is not imported.\n"
        "\n"
        "`check` tells each entry's kind, and what is wrong by line and column. `why` "
        "tells "
        "what an operator is in torch and what to write for it; `skeleton` prints the "
        "entries of its group and the functions to fill in.\n",
    .options = options,
    .examples = "  ulpscope ops skeleton tril nonzero\n"
                "  ulpscope ops skeleton --c silu flip\n"
                "  ulpscope ops gen ops.yaml --source tril.cpp -o build/ops\n"
                "  ULPSCOPE_SIM_OPS=build/ops python train.py\n"
                "  ulpscope ops why aten::lerp.Scalar\n",
    .codes = "0 all is well, 1 something is wrong in the file (nothing is written), 2 "
             "something went wrong",
};

typedef struct arguments {
    usc_ops_options ops;
    const char *source[MOST_FILES], *include[MOST_FILES];
    const char *out, *part;
    char native[PATH_MAX];
    bool json, in_c;
} arguments;

static bool take_file(const char *option, const char **list, size_t *n)
{
    if (*n == MOST_FILES)
        return cli_fail("--%s: at most %d files", option, MOST_FILES) == 0;
    list[(*n)++] = optarg;
    return true;
}

static bool take(arguments *a, int key)
{
    switch (key) {
    case 'o':
        a->out = optarg;
        return true;
    case OPT_SOURCE:
        return take_file("source", a->source, &a->ops.n_source);
    case OPT_INCLUDE:
        return take_file("include", a->include, &a->ops.n_include);
    case OPT_SPACE:
        a->ops.cxx_space = optarg;
        return true;
    case OPT_LENIENT:
        return a->ops.lenient = true;
    case OPT_C:
        return a->in_c = true;
    case OPT_NATIVE:
        a->ops.native = optarg;
        return true;
    case OPT_JSON:
        return a->json = true;
    default:
        return false;
    }
}

/* Where the torch at hand has its schemas; false after a sentence. */
static bool find_native(arguments *a)
{
    static cli_python python;
    usc_error err;
    if (a->ops.native != NULL) return true;
    if (!cli_python_find(&python, &err)) {
        (void)cli_fail("%s", err.text);
        return false;
    }
    char flag
        [] = "-c",
    code[] =
        "import importlib.util as u, os, sys; s = u.find_spec('torchgen'); "
        "p = list(s.submodule_search_locations)[0] if s else ''; "
        "sys.stdout.write(os.path.join(p, 'packaged/ATen/native/native_functions.yaml'))";
    char *argv[] = {python.program, flag, code, NULL};
    const int rc = cli_run(argv, 30000, false, a->native, sizeof a->native);
    a->ops.native = a->native;
    if (rc == 0 && access(a->native, R_OK) == 0) return true;
    return cli_fail(
               "the torch of %s has no native_functions.yaml (of its package torchgen); "
               "give one by --native FILE",
               python.program) == 0;
}

/* ---- telling */

static void put_json(const char *path, const usc_ops_result *r)
{
    (void)printf("{\"version\": 1, \"file\": ");
    cli_put_text(stdout, path);
    (void)fputs(", \"operators\": [", stdout);
    for (size_t i = 0; i < r->n; i++) {
        (void)printf("%s{\"name\": ", i > 0 ? ", " : "");
        cli_put_text(stdout, r->op[i].name);
        (void)printf(", \"kind\": ");
        cli_put_text(stdout, usc_ops_kind_text(r->op[i].kind));
        (void)printf(", \"line\": %lld}", (long long)r->op[i].line);
    }
    const usc_ops_problem *const lists[] = {r->problem, r->left_out};
    const size_t n[] = {r->n_problems, r->n_left_out};
    for (int k = 0; k < 2; k++) {
        (void)printf("], \"%s\": [", k == 0 ? "problems" : "left_out");
        for (size_t i = 0; i < n[k]; i++) {
            (void)printf(
                "%s{\"line\": %lld, \"column\": %lld, \"text\": ", i > 0 ? ", " : "",
                (long long)lists[k][i].line, (long long)lists[k][i].column);
            cli_put_text(stdout, lists[k][i].text);
            (void)fputc('}', stdout);
        }
    }
    (void)puts("]}");
}

static void put_kinds(const usc_ops_result *r)
{
    for (size_t i = 0; i < r->n; i++)
        (void)printf("%-44s %s\n", r->op[i].name, usc_ops_kind_text(r->op[i].kind));
}

static int tell(const arguments *a, const char *path, const usc_ops_result *r)
{
    if (a->json) {
        put_json(path, r);
        return r->n_problems > 0 ? CLI_DIFFERS : CLI_SAME;
    }
    if (a->out == NULL) put_kinds(r);
    for (size_t i = 0; i < r->n_left_out; i++)
        (void)fprintf(stderr, "%s:%lld: left out, this torch does not have it: %s\n",
                      path, (long long)r->left_out[i].line, r->left_out[i].text);
    (void)fflush(stdout);
    for (size_t i = 0; i < r->n_problems; i++)
        (void)fprintf(stderr, "%s:%lld:%lld: %s\n", path, (long long)r->problem[i].line,
                      (long long)r->problem[i].column, r->problem[i].text);
    const char *s = r->n_problems == 1 ? "" : "s";
    if (r->n_problems > 0)
        (void)printf("%zu problem%s%s\n", r->n_problems, s,
                     a->out != NULL ? "; nothing was written" : "");
    else
        (void)printf("%zu operator%s%s%s\n", r->n, r->n == 1 ? "" : "s",
                     a->out != NULL ? ": " : "", a->out != NULL ? a->out : "");
    return r->n_problems > 0 ? CLI_DIFFERS : CLI_SAME;
}

/* ---- the parts */

static int run_file(arguments *a, char **words, int n)
{
    usc_ops_result *r;
    usc_error err;
    if (n != 1) return cli_fail("one file of operators is needed; %d are given", n);
    if (strcmp(a->part, "gen") == 0 && a->out == NULL)
        return cli_fail("-o DIR is needed, the folder that is written");
    if (strcmp(a->part, "check") == 0 && a->out != NULL)
        return cli_fail("check writes nothing: leave out -o, or say gen");
    const usc_status st = a->out != NULL
                              ? usc_ops_generate(words[0], a->out, &a->ops, &r, &err)
                              : usc_ops_check(words[0], &a->ops, &r, &err);
    if (st != USC_OK) return cli_fail("%s", err.text);
    const int code = tell(a, words[0], r);
    usc_ops_free(r);
    if (code == CLI_SAME && a->out != NULL && !a->json)
        cli_next_is("ULPSCOPE_SIM_OPS=%s python SCRIPT", a->out);
    return code;
}

static int run_why(const arguments *a, char **words, int n)
{
    usc_error err;
    for (int i = 0; i < n; i++)
        if (usc_ops_why(words[i], a->ops.native, stdout, &err) != USC_OK)
            return cli_fail("%s", err.text);
    return CLI_SAME;
}

static int run_skeleton(const arguments *a, char **words, int n)
{
    usc_error err;
    char *code = NULL;
    size_t size = 0;
    FILE *cxx = open_memstream(&code, &size);
    if (cxx == NULL) return cli_fail("no memory");
    (void)puts("# ops.yaml");
    const usc_status st = usc_ops_skeleton((const char *const *)words, (size_t)n,
                                           a->ops.native, a->in_c, stdout, cxx, &err);
    (void)fclose(cxx);
    if (st == USC_OK && size > 0 && a->in_c)
        (void)printf("// kernels.c\n#include \"sim_ops_c.h\"\n\n%s", code);
    else if (st == USC_OK && size > 0)
        (void)printf(
            "// kernels.cpp\n#include \"sim_ops.h\"\n\nnamespace %s\n{\n\n%s} // "
            "namespace %s\n",
            a->ops.cxx_space != NULL ? a->ops.cxx_space : "at::sim", code,
            a->ops.cxx_space != NULL ? a->ops.cxx_space : "at::sim");
    free(code);
    return st == USC_OK ? CLI_SAME : cli_fail("%s", err.text);
}

int cmd_ops(int argc, char **argv)
{
    static arguments a;
    cli_begin("ops");
    for (int key; (key = cli_next(&cmd_ops_page, argc, argv)) != -1;)
        if (key == '?' || !take(&a, key)) return CLI_TROUBLE;
    a.ops.source = a.source;
    a.ops.include = a.include;
    a.part = optind < argc ? argv[optind] : "";
    char **words = argv + optind + 1;
    const int n = argc - optind - 1;
    const bool file = strcmp(a.part, "gen") == 0 || strcmp(a.part, "check") == 0;
    const bool why = strcmp(a.part, "why") == 0;
    if (!file && !why && strcmp(a.part, "skeleton") != 0)
        return cli_fail("'%s' is none of gen, check, why and skeleton; see ulpscope ops "
                        "--help",
                        a.part);
    if (!file && n < 1) return cli_fail("%s needs the name of an operator", a.part);
    if (!find_native(&a)) return CLI_TROUBLE;
    return cli_close_output(file  ? run_file(&a, words, n)
                            : why ? run_why(&a, words, n)
                                  : run_skeleton(&a, words, n));
}
