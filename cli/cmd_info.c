// SPDX-License-Identifier: Apache-2.0
// ulpscope info: what this installation is made of.
#include "cli.h"
#include "common/cli_python.h"

#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>

#include <ulpscope/version.h>
#include <ulpscope/x/kernels.h>

static const cli_entry own_options[] = {
    {256, "json", NULL, NULL, "the same as one JSON object"}, {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_info_page = {
    .command = "info",
    .usage = "[--json]",
    .about =
        "Prints the version, the instruction set that the inner loops use, and what "
        "the Python side finds: interpreter, torch, the devices that torch sees, and "
        "the glue to torch: what is built, with which compiler, and where it is kept; "
        "and "
        "what this torch lacks of what is used, with what is less for it.\n"
        "\n"
        "ULPSCOPE_ISA=scalar, avx2 or avx512 before a command, this or another or "
        "Python, takes that instruction set instead of the widest there is; no result "
        "depends on it.\n",
    .options = options,
    .examples = "  ulpscope info\n"
                "  ULPSCOPE_PYTHON=~/venv/bin/python ulpscope info\n",
    .codes = "0 told, 2 something went wrong",
};

/* Prints lines behind a mark, since a site may print its own: Python, torch, devices,
 * glue, compiler, cache, what this torch lacks. Asked of a child: torch may hang or crash. */
#define MARK "ulpscope info begins here\n"
static const char question[] =
    "import platform\n"
    "print('ulpscope info begins here')\n"
    "print(platform.python_version())\n"
    "try:\n"
    "    import torch\n"
    "except Exception as e:\n"
    "    print('missing (%s: %s)' % (type(e).__name__, str(e).split('\\n')[0]))\n"
    "    print('')\n"
    "    raise SystemExit\n"
    "print(torch.__version__)\n"
    "found = ['cpu']\n"
    "a = getattr(torch, 'accelerator', None)\n"
    "if a is not None and a.is_available():\n"
    "    t = a.current_accelerator().type\n"
    "    found += ['%s:%d' % (t, i) for i in range(a.device_count())]\n"
    "from ulpscope.program import glue\n"
    "if (glue.PACKAGE / 'libulpscope_sim.so').exists():\n"
    "    found.append('sim:0, sim:1 (simulated)')\n"
    "print(', '.join(found))\n"
    "for line in glue.told():\n"
    "    print(line)\n"
    "from ulpscope.program import lacks\n"
    "print(lacks.sentence())\n";

enum { TORCH_TIMEOUT_MS = 60000 };

typedef struct facts {
    cli_python python;
    char output[16384];
    const char *python_version, *torch, *devices, *glue, *compiler, *cache, *lacks;
} facts;

static char *cut_line(char **rest)
{
    char *line = *rest;
    char *end = strchr(line, '\n');
    *rest = end != NULL ? end + 1 : line + strlen(line);
    if (end != NULL) *end = '\0';
    return line;
}

static void ask_python(facts *f)
{
    f->python_version = f->torch = f->devices = "";
    f->glue = f->compiler = f->cache = f->lacks = "";
    if (!cli_python_find(&f->python, NULL)) {
        (void)snprintf(f->python.program, sizeof f->python.program, "none");
        f->torch = "unknown (no Python)";
        return;
    }
    char flag[] = "-c", code[sizeof question];
    memcpy(code, question, sizeof question);
    char *argv[] = {f->python.program, flag, code, NULL};
    (void)fputs("ulpscope info: loading torch, to ask what it sees\n", stderr);
    const int status =
        cli_run(argv, TORCH_TIMEOUT_MS, false, f->output, sizeof f->output);
    if (status == -2)
        f->torch = "no answer within 60 s";
    else if (status != 0)
        f->torch = "the interpreter failed while it was asked";
    if (status != 0) return;
    char *rest = strstr(f->output, MARK);
    if (rest == NULL) return;
    rest += strlen(MARK);
    const char **const lines[] = {&f->python_version, &f->torch, &f->devices, &f->glue,
                                  &f->compiler,       &f->cache, &f->lacks};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        *lines[i] = cut_line(&rest);
}

static void print_json(const char *const rows[][2], size_t n)
{
    putchar('{');
    for (size_t i = 0; i < n; i++) {
        (void)printf("%s\"%s\": ", i > 0 ? ", " : "", rows[i][0]);
        cli_put_text(stdout, rows[i][1]);
    }
    puts("}");
}

int cmd_info(int argc, char **argv)
{
    bool json = false;
    for (int key; (key = cli_next(&cmd_info_page, argc, argv)) != -1;) {
        if (key == '?') return CLI_TROUBLE;
        json = true;
    }
    if (optind != argc) return cli_fail("info takes no argument '%s'", argv[optind]);

    facts f;
    ask_python(&f);
    const char *const rows[][2] = {{"ulpscope", USC_VERSION},
                                   {"isa", usc_kernels_isa()},
                                   {"sqlite", sqlite3_libversion()},
                                   {"python", f.python.program},
                                   {"python_version", f.python_version},
                                   {"torch", f.torch},
                                   {"devices", f.devices},
                                   {"glue", f.glue},
                                   {"compiler", f.compiler},
                                   {"cache", f.cache},
                                   {"lacks", f.lacks}};
    const size_t n = sizeof rows / sizeof rows[0];
    if (json) {
        print_json(rows, n);
    } else {
        for (size_t i = 0; i < n; i++)
            if (rows[i][1][0] != '\0') (void)printf("%-15s %s\n", rows[i][0], rows[i][1]);
    }
    return cli_close_output(CLI_SAME);
}
