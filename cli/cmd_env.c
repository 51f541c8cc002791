// SPDX-License-Identifier: Apache-2.0
// ulpscope env: what the numbers of a run depend on beside the program, on this machine;
// and what two machines differ in. Torch answers through ulpscope.program.env_facts.
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ulpscope/version.h>

#include "common/cli_python.h"
#include "env/env_around.h"

enum { OPT_FILE = 256, OPT_JSON, MOST_FILES = 256, TIMEOUT_MS = 600000 };
#define MARK "ulpscope env begins here\n"
#define FIRST_LINE "ulpscope-env 1\n"

static const cli_entry own_options[] = {
    {'o', "out", "FILE", NULL, "write it to FILE, for env diff"},
    {OPT_FILE, "file", "PATH", NULL,
     "add the digest of this file, or of all in a folder: weights, data; may be "
     "repeated"},
    {OPT_JSON, "json", NULL, NULL, "one JSON object"},
    {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_env_page = {
    .command = "env",
    .usage = "[-o FILE] [OPTIONS] [-- COMMAND [ARGS]...]\n       ulpscope env diff A B "
             "[--json]",
    .about =
        "Prints what numbers depend on beside the program: torch's flags (TF32, reduced "
        "precision, deterministic algorithms, autocast), environment variables of known "
        "families, digests of files, versions, hardware. Flags are those that a fresh "
        "Python "
        "begins with; with COMMAND (python train.py, torchrun) those that its first "
        "process "
        "with torch, of a job that of rank 0, has as it ends, and the variables that it "
        "has then.\n"
        "\n"
        "env diff holds two such files against each other, what changes numbers first. "
        "No "
        "variable of another family is read, and of one that is called a token, key, "
        "secret "
        "or password only that it is set.\n",
    .options = options,
    .examples = "  ulpscope env -o here.env --file weights.safetensors\n"
                "  ulpscope env -o train.env -- python train.py\n"
                "  ulpscope env diff there.env here.env\n",
    .codes = "0 told, or the same; 1 they differ; 2 something went wrong; where COMMAND "
             "failed "
             "its own, 128 + n when signal n ended it",
};

/* ---- facts ---- */

typedef struct fact {
    char *name, *value;
} fact;

typedef struct facts {
    fact *fact;
    size_t n;
    bool failed;
} facts;

static void add(facts *f, const char *name, const char *value)
{
    fact *more = realloc(f->fact, (f->n + 1) * sizeof *more);
    if (more == NULL) {
        f->failed = true;
        return;
    }
    f->fact = more;
    more[f->n] = (fact){strdup(name), strdup(value)};
    for (char *c = more[f->n].value; c != NULL && *c != '\0'; c++)
        if (*c == '\n' || *c == '\t' || *c == '\r') *c = ' ';
    f->failed |= more[f->n].name == NULL || more[f->n].value == NULL;
    f->n++;
}

static void free_facts(facts *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->fact[i].name);
        free(f->fact[i].value);
    }
    free(f->fact);
    *f = (facts){0};
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const fact *)a)->name, ((const fact *)b)->name);
}

/* ---- variables ---- */

static bool begins(const char *text, const char *const *starts)
{
    for (; *starts != NULL; starts++)
        if (strncmp(text, *starts, strlen(*starts)) == 0) return true;
    return false;
}

static bool holds(const char *text, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        if (strcasestr(text, *parts) != NULL) return true;
    return false;
}

static const char *const families[] = {"TORCH",
                                       "PYTORCH",
                                       "ATEN_",
                                       "CUDA_",
                                       "CUBLAS",
                                       "CUDNN",
                                       "NVIDIA_",
                                       "NCCL_",
                                       "HCCL_",
                                       "LCCL_",
                                       "ASCEND",
                                       "ACL_",
                                       "NPU_",
                                       "TASK_QUEUE_ENABLE",
                                       "CLOSE_MATMUL_K_SHIFT",
                                       "INF_NAN_MODE",
                                       "MUSA_",
                                       "MUDNN",
                                       "MCCL_",
                                       "CNCL_",
                                       "MLU_",
                                       "HIP_",
                                       "HSA_",
                                       "ROCM",
                                       "ROCBLAS",
                                       "MIOPEN_",
                                       "RCCL_",
                                       "ONEAPI",
                                       "SYCL_",
                                       "CCL_",
                                       "IPEX_",
                                       "OMP_",
                                       "GOMP_",
                                       "KMP_",
                                       "MKL_",
                                       "OPENBLAS_",
                                       "BLIS_",
                                       "DNNL_",
                                       "ONEDNN_",
                                       "XLA_",
                                       "TRITON_",
                                       "NVTE_",
                                       "FLASH_ATTENTION_",
                                       "PYTHONHASHSEED",
                                       "LD_PRELOAD",
                                       "LD_LIBRARY_PATH",
                                       "GLOO_",
                                       "ULPSCOPE_",
                                       "MALLOC_",
                                       "DS_",
                                       "WORLD_SIZE",
                                       NULL};

/* Of these only that they are set is told. */
static bool is_secret(const char *name, const char *value)
{
    static const char *const parts[] = {"TOKEN", "KEY",        "SECRET", "PASSW", "PWD",
                                        "AUTH",  "CREDENTIAL", "COOKIE", NULL};
    const char *at = strstr(value, "://");
    return holds(name, parts) || (at != NULL && strchr(at, '@') != NULL);
}

extern char **environ;

static void add_variables(facts *f)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        char name[128];
        const char *equals = strchr(*entry, '=');
        if (equals == NULL || !begins(*entry, families)) continue;
        (void)snprintf(name, sizeof name, "variable.%.*s", (int)(equals - *entry),
                       *entry);
        add(f, name, is_secret(name, equals + 1) ? "(set; not shown)" : equals + 1);
    }
}

/* ---- the machine ---- */

static void add_processor(facts *f)
{
    char line[512];
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, "model name", 10) != 0) continue;
        colon[strcspn(colon, "\n")] = '\0';
        add(f, "hardware.processor", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file != NULL) (void)fclose(file);
}

static void add_machine(facts *f)
{
    struct utsname system;
    char text[64];
    add(f, "version.ulpscope", USC_VERSION);
    if (uname(&system) == 0) {
        add(f, "version.kernel", system.release);
        add(f, "hardware.machine", system.machine);
    }
    (void)confstr(_CS_GNU_LIBC_VERSION, text, sizeof text);
    add(f, "version.libc", text);
    (void)snprintf(text, sizeof text, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    add(f, "hardware.cores", text);
    add_processor(f);
}

/* What Python answers, line by line. False after a sentence: a file cannot be read. */
static bool add_answers(facts *f, char *at)
{
    while (*at != '\0') {
        char *end = at + strcspn(at, "\n"), *tab = memchr(at, '\t', (size_t)(end - at));
        const bool last = *end == '\0';
        *end = '\0';
        if (tab != NULL) {
            *tab = '\0';
            if (strcmp(at, "error") == 0) return cli_fail("%s", tab + 1) == 0;
            const bool hush =
                strncmp(at, "variable.", 9) == 0 && is_secret(at + 9, tab + 1);
            add(f, at, hush ? "(set; not shown)" : tab + 1);
        }
        at = end + !last;
    }
    return true;
}

static bool ask_python(facts *f, const char *const *files, int n_files)
{
    static cli_python python;
    static char output[1 << 20];
    char flag[] = "-m", module[] = "ulpscope.program.env_facts";
    char *argv[MOST_FILES + 4] = {python.program, flag, module};
    usc_error err;
    if (!cli_python_find(&python, &err)) {
        if (n_files > 0) return cli_fail("%s", err.text) == 0;
        add(f, "version.python", "none with the package ulpscope");
        return true;
    }
    for (int i = 0; i < n_files; i++)
        argv[3 + i] = strdup(files[i]);
    (void)fputs("ulpscope env: loading torch, to ask for its settings\n", stderr);
    const int code = cli_run(argv, TIMEOUT_MS, false, output, sizeof output);
    for (int i = 0; i < n_files; i++)
        free(argv[3 + i]);
    char *at = strstr(output, MARK);
    if (code != 0 || at == NULL)
        return cli_fail("%s does not answer (exit code %d); try: %s -m "
                        "ulpscope.program.env_facts",
                        python.program, code, python.program) == 0;
    return add_answers(f, at + strlen(MARK));
}

/* ---- writing and reading ---- */

static void put_facts(const facts *f, bool json, FILE *to)
{
    (void)fputs(json ? "{" : FIRST_LINE, to);
    for (size_t i = 0; i < f->n; i++) {
        if (!json) {
            (void)fprintf(to, "%s\t%s\n", f->fact[i].name, f->fact[i].value);
            continue;
        }
        (void)fputs(i > 0 ? ", " : "", to);
        cli_put_text(to, f->fact[i].name);
        (void)fputs(": ", to);
        cli_put_text(to, f->fact[i].value);
    }
    if (json) (void)fputs("}\n", to);
}

static bool read_facts(const char *path, facts *out)
{
    char *text = NULL;
    size_t size = 0;
    FILE *file = fopen(path, "r");
    if (file == NULL) return cli_fail("%s: %s", path, strerror(errno)) == 0;
    const bool read = getdelim(&text, &size, '\0', file) >= 0;
    (void)fclose(file);
    bool ok = read && strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) == 0;
    if (!ok)
        (void)cli_fail(
            "%s is not what ulpscope env -o writes; write it there, and compare "
            "the files here",
            path);
    ok = ok && add_answers(out, text + strlen(FIRST_LINE));
    free(text);
    if (ok && out->n > 0) qsort(out->fact, out->n, sizeof *out->fact, by_name);
    return ok;
}

/* ---- the difference ---- */

static const char *const titles[] = {"changes numbers", "may change numbers",
                                     "seldom changes numbers"};

/* Which of the titles a fact belongs under. */
static int rank_of(const char *name)
{
    static const char *const surely[] = {"flag.", "file.", NULL};
    static const char *const decisive[] = {"TF32",      "HF32",    "DETERMINISTIC",
                                           "PRECISION", "REDUCED", "WORKSPACE_CONFIG",
                                           "HASHSEED",  "K_SHIFT", "INF_NAN",
                                           "FLUSH",     "DENORM",  "ALLOW_",
                                           "FAULTS",    "CBWR",    "_ALGO",
                                           "BENCHMARK", NULL};
    static const char *const maybe[] = {"version.",
                                        "hardware.",
                                        "variable.OMP_",
                                        "variable.MKL_",
                                        "variable.LD_",
                                        "variable.WORLD_SIZE",
                                        NULL};
    static const char *const seldom[] = {"version.kernel", "version.libc",
                                         "version.ulpscope", NULL};
    if (begins(name, surely) ||
        (strncmp(name, "variable.", 9) == 0 && holds(name, decisive)))
        return 0;
    return begins(name, maybe) && !begins(name, seldom) ? 1 : 2;
}

typedef struct pair {
    const char *name, *a, *b; /* NULL: not there */
} pair;

/* The facts that differ; `out` has room for all of both. */
static size_t pair_up(const facts *a, const facts *b, pair *out)
{
    size_t n = 0, i = 0, j = 0;
    while (i < a->n || j < b->n) {
        const int order = i == a->n   ? 1
                          : j == b->n ? -1
                                      : strcmp(a->fact[i].name, b->fact[j].name);
        const fact *p = order <= 0 ? &a->fact[i++] : NULL,
                   *q = order >= 0 ? &b->fact[j++] : NULL;
        if (p == NULL || q == NULL || strcmp(p->value, q->value) != 0)
            out[n++] = (pair){p != NULL ? p->name : q->name, p != NULL ? p->value : NULL,
                              q != NULL ? q->value : NULL};
    }
    return n;
}

static void put_pairs(const pair *pairs, size_t n, const char *a, const char *b)
{
    for (int rank = 0; rank < 3; rank++) {
        bool titled = false;
        for (size_t i = 0; i < n; i++) {
            if (rank_of(pairs[i].name) != rank) continue;
            if (!titled) (void)printf("%s\n", titles[rank]);
            titled = true;
            (void)printf("  %s\n    %-12s %s\n    %-12s %s\n", pairs[i].name, a,
                         pairs[i].a != NULL ? pairs[i].a : "(not there)", b,
                         pairs[i].b != NULL ? pairs[i].b : "(not there)");
        }
    }
    if (n == 0) (void)puts("the same in all that was recorded");
}

static void put_value(const char *text)
{
    if (text != NULL)
        cli_put_text(stdout, text);
    else
        (void)fputs("null", stdout);
}

static void put_pairs_json(const pair *pairs, size_t n)
{
    (void)fputs("{\"version\": 1, \"differ\": [", stdout);
    bool first = true;
    for (int rank = 0; rank < 3; rank++)
        for (size_t i = 0; i < n; i++) {
            if (rank_of(pairs[i].name) != rank) continue;
            (void)fputs(first ? "{\"name\": " : ", {\"name\": ", stdout);
            first = false;
            cli_put_text(stdout, pairs[i].name);
            (void)printf(", \"kind\": \"%s\", \"a\": ", titles[rank]);
            put_value(pairs[i].a);
            (void)fputs(", \"b\": ", stdout);
            put_value(pairs[i].b);
            (void)putchar('}');
        }
    (void)puts("]}");
}

static int diff(const char *a, const char *b, bool json)
{
    facts left = {0}, right = {0};
    int code = CLI_TROUBLE;
    if (read_facts(a, &left) && read_facts(b, &right)) {
        pair *pairs = calloc(left.n + right.n + 1, sizeof *pairs);
        const size_t n = pairs != NULL ? pair_up(&left, &right, pairs) : 0;
        if (json)
            put_pairs_json(pairs, n);
        else
            put_pairs(pairs, n, a, b);
        code = pairs == NULL ? cli_fail("out of memory")
                             : cli_close_output(n > 0 ? CLI_DIFFERS : CLI_SAME);
        free(pairs);
    }
    free_facts(&left);
    free_facts(&right);
    return code;
}

/* ---- the command ---- */

typedef struct arguments {
    const char *out, *files[MOST_FILES];
    int n_files;
    char **command; /* NULL: none */
    bool json;
} arguments;

static int write_out(const facts *f, const arguments *a)
{
    if (a->out == NULL) {
        put_facts(f, a->json, stdout);
        return cli_close_output(CLI_SAME);
    }
    FILE *to = fopen(a->out, "w");
    if (to == NULL) return cli_fail("%s: %s", a->out, strerror(errno));
    put_facts(f, a->json, to);
    const bool bad = ferror(to) != 0;
    if (fclose(to) != 0 || bad) return cli_fail("%s: %s", a->out, strerror(errno));
    return CLI_SAME;
}

/* What a command told, and digests of files. False after a sentence; *code is the
 * command's. */
static bool ask_command(facts *f, const arguments *a, int *code)
{
    static char told[1 << 20];
    facts here = {0};
    *code = env_around(a->command, families, told, sizeof told);
    if (*told == '\0' || !add_answers(f, told)) return false;
    const bool ok = a->n_files == 0 || ask_python(&here, a->files, a->n_files);
    for (size_t i = 0; i < here.n; i++)
        if (strncmp(here.fact[i].name, "file.", 5) == 0)
            add(f, here.fact[i].name, here.fact[i].value);
    f->failed |= here.failed;
    free_facts(&here);
    return ok;
}

static bool ask_here(facts *f, const arguments *a)
{
    add_variables(f);
    return ask_python(f, a->files, a->n_files);
}

static int record(const arguments *a)
{
    facts f = {0};
    int code = CLI_TROUBLE, own = CLI_SAME;
    add_machine(&f);
    if (a->command != NULL ? ask_command(&f, a, &own) : ask_here(&f, a)) {
        if (!f.failed) qsort(f.fact, f.n, sizeof *f.fact, by_name);
        code = f.failed ? cli_fail("out of memory") : write_out(&f, a);
    }
    free_facts(&f);
    return code != CLI_SAME ? code : own;
}

int cmd_env(int argc, char **argv)
{
    arguments a = {0};
    cli_begin("env");
    for (int key; (key = cli_next(&cmd_env_page, argc, argv)) != -1;) {
        if (key == '?') return CLI_TROUBLE;
        if (key == 'o') a.out = optarg;
        if (key == OPT_JSON) a.json = true;
        if (key != OPT_FILE) continue;
        if (a.n_files == MOST_FILES) return cli_fail("more than %d --file", MOST_FILES);
        a.files[a.n_files++] = optarg;
    }
    if (optind < argc && strcmp(argv[optind - 1], "--") == 0) a.command = argv + optind;
    if (optind == argc || a.command != NULL) return record(&a);
    if (strcmp(argv[optind], "diff") != 0 || argc - optind != 3)
        return cli_fail("write ulpscope env, ulpscope env -- COMMAND, or ulpscope env "
                        "diff A B; see ulpscope env "
                        "--help");
    if (a.out != NULL || a.n_files > 0)
        return cli_fail("env diff only reads: leave out -o and --file");
    return diff(argv[optind + 1], argv[optind + 2], a.json);
}
