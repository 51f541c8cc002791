// SPDX-License-Identifier: Apache-2.0
// ulpscope env: what the numbers of a run depend on beside the program, on this machine;
// and what two machines differ in. Torch answers through ulpscope.program.env_facts.
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ulpscope/version.h>

#include "common/cli_python.h"
#include "env/env_around.h"
#include "env/env_facts.h"

enum { OPT_FILE = 256, OPT_JSON, MOST_FILES = 256, TIMEOUT_MS = 600000 };
#define MARK "ulpscope env begins here\n"

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

/* ---- variables ---- */

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

extern char **environ;

static void add_variables(facts *f)
{
    for (char **entry = environ; *entry != NULL; entry++) {
        char name[128];
        const char *equals = strchr(*entry, '=');
        if (equals == NULL || !env_begins(*entry, families)) continue;
        (void)snprintf(name, sizeof name, "variable.%.*s", (int)(equals - *entry),
                       *entry);
        env_add(f, name,
                env_is_secret(name, equals + 1) ? "(set; not shown)" : equals + 1);
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
        env_add(f, "hardware.processor", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    if (file != NULL) (void)fclose(file);
}

static void add_machine(facts *f)
{
    struct utsname system;
    char text[64];
    env_add(f, "version.ulpscope", USC_VERSION);
    if (uname(&system) == 0) {
        env_add(f, "version.kernel", system.release);
        env_add(f, "hardware.machine", system.machine);
    }
    (void)confstr(_CS_GNU_LIBC_VERSION, text, sizeof text);
    env_add(f, "version.libc", text);
    (void)snprintf(text, sizeof text, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    env_add(f, "hardware.cores", text);
    add_processor(f);
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
        env_add(f, "version.python", "none with the package ulpscope");
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
    return env_add_answers(f, at + strlen(MARK));
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
        env_put(f, a->json, stdout);
        return cli_close_output(CLI_SAME);
    }
    FILE *to = fopen(a->out, "w");
    if (to == NULL) return cli_fail("%s: %s", a->out, strerror(errno));
    env_put(f, a->json, to);
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
    if (*told == '\0' || !env_add_answers(f, told)) return false;
    const bool ok = a->n_files == 0 || ask_python(&here, a->files, a->n_files);
    for (size_t i = 0; i < here.n; i++)
        if (strncmp(here.fact[i].name, "file.", 5) == 0)
            env_add(f, here.fact[i].name, here.fact[i].value);
    f->failed |= here.failed;
    env_free(&here);
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
        if (!f.failed) env_sort(&f);
        code = f.failed ? cli_fail("out of memory") : write_out(&f, a);
    }
    env_free(&f);
    return code != CLI_SAME ? code : own;
}

int cmd_env(int argc, char **argv)
{
    arguments a = {0};
    cli_begin("env");
    for (int key; (key = cli_next(&cmd_env_page, argc, argv)) != -1;) {
        if (key == '?') return CLI_TROUBLE;
        if (key == 'o') a.out = optarg;
        if (key == 'o' && !cli_writable("-o", optarg)) return CLI_TROUBLE;
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
    return env_diff(argv[optind + 1], argv[optind + 2], a.json);
}
