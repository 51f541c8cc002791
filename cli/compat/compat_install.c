// SPDX-License-Identifier: Apache-2.0
// A folder DIR/api_accuracy_checker that is our package by the name of theirs: each
// module of it names the one of ours that it is.
#include "compat/compat.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/cli_python.h"

/* A module of the shim is the module of ours: whoever imports either has one state. */
static const char module_text[] =
    "import importlib\n"
    "import sys\n"
    "\n"
    "sys.modules[__name__] = importlib.import_module(\"ulpscope.compat.\" + __name__)\n";

static const char script_text[] =
    "from ulpscope.compat.api_accuracy_checker.run_ut.%s import main\n"
    "\n"
    "if __name__ == \"__main__\":\n"
    "    raise SystemExit(main(__file__))\n";

/* The files that a user reads and edits are copied. */
static bool copy(const char *from, const char *folder, const char *name)
{
    char path[PATH_MAX], bytes[4096];
    if ((size_t)snprintf(path, sizeof path, "%s/%s", folder, name) >= sizeof path)
        return false;
    if (access(path, F_OK) == 0 && strcmp(name, "config.yaml") == 0)
        return true; /* the user's */
    FILE *in = fopen(from, "r"), *out = in != NULL ? fopen(path, "w") : NULL;
    bool good = out != NULL;
    for (size_t n; good && (n = fread(bytes, 1, sizeof bytes, in)) > 0;)
        good = fwrite(bytes, 1, n, out) == n;
    good = good && ferror(in) == 0;
    if (in != NULL) (void)fclose(in);
    if (out != NULL && fclose(out) != 0) good = false;
    if (!good) cli_fail("%s cannot be written: %s", path, strerror(errno));
    return good;
}

static bool write_package(const char *package, const char *root)
{
    static const char *const folders[] = {"dump", "common", "hook_module", "run_ut"};
    static const char *const copied[][3] = {
        {"", "", "config.yaml"},
        {"hook_module", "/hook_module", "support_wrap_ops.yaml"}};
    static const char *const modules[][2] = {{"dump", "dump.py"},
                                             {"common", "config.py"}};
    static const char *const scripts[] = {"run_ut", "run_overflow_check"};
    char path[PATH_MAX], from[PATH_MAX], name[64];
    if (!compat_make(root, "", path) ||
        !compat_write(
            root, "__init__.py",
            "\"\"\"ulpscope.compat.api_accuracy_checker by its other name.\"\"\"\n",
            NULL))
        return false;
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        const bool is_module = i < 2;
        if (!compat_make(root, folders[i], path) ||
            !compat_write(path, "__init__.py", is_module ? module_text : "", NULL))
            return false;
    }
    for (size_t i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "%s.py", scripts[i]);
        if (!compat_make(root, modules[i][0], path) ||
            !compat_write(path, modules[i][1], module_text, NULL) ||
            !compat_make(root, "run_ut", path) ||
            !compat_write(path, name, script_text, scripts[i]) ||
            !compat_make(root, copied[i][0], path) ||
            (size_t)snprintf(from, sizeof from, "%s/compat/api_accuracy_checker%s/%s",
                             package, copied[i][1], copied[i][2]) >= sizeof from ||
            !copy(from, path, copied[i][2]))
            return false;
    }
    return true;
}

int compat_install(const compat_arguments *a)
{
    char out[PATH_MAX], root[PATH_MAX];
    cli_python python;
    usc_error err;
    const bool musa = a->name != NULL && strcmp(a->name, "torch_musa") == 0;
    if (!musa && (a->name == NULL || strcmp(a->name, "api_accuracy_checker") != 0))
        return cli_fail("install api_accuracy_checker or torch_musa%s%s",
                        a->name != NULL ? ", not " : "", a->name != NULL ? a->name : "");
    if (!musa && !cli_python_find(&python, &err)) return cli_fail("%s", err.text);
    const char *folder = a->out != NULL ? a->out : "ulpscope-compat";
    if (!compat_make(folder, "", out)) return CLI_TROUBLE;
    if (realpath(folder, out) == NULL) return cli_fail("%s: %s", folder, strerror(errno));
    if (musa ? !compat_write_musa(out)
             : !compat_make(out, "api_accuracy_checker", root) ||
                   !write_package(python.package, root))
        return CLI_TROUBLE;
    (void)printf("export PYTHONPATH=\"%s\"${PYTHONPATH:+:$PYTHONPATH}\n", out);
    if (musa) (void)printf("export PATH=\"%s/bin:$PATH\"\n", out);
    return cli_close_output(CLI_SAME);
}
