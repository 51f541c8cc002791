// SPDX-License-Identifier: Apache-2.0
// A folder DIR that has the converters and debugging tools of torch_musa by their names:
// modules below DIR/torch_musa, programs in DIR/bin. Where the real package is installed,
// all else of it is what it was.
#include "compat/compat.h"

#include <sys/stat.h>

/* The real package's own code goes on, with our folder before its own. */
static const char package_text[] =
    "import importlib.machinery\n"
    "import os\n"
    "import sys\n"
    "\n"
    "_here = os.path.dirname(os.path.abspath(__file__))\n"
    "_rest = [p for p in sys.path if os.path.abspath(p or \".\") != "
    "os.path.dirname(_here)]\n"
    "_real = importlib.machinery.PathFinder.find_spec(__name__, _rest)\n"
    "if _real is not None and _real.origin:\n"
    "    __path__ = [_here, *_real.submodule_search_locations]\n"
    "    __file__ = _real.origin\n"
    "    with open(_real.origin, \"rb\") as _source:\n"
    "        exec(compile(_source.read(), _real.origin, \"exec\"))\n";

static const char utils_text[] = "from pkgutil import extend_path\n"
                                 "\n"
                                 "__path__ = extend_path(__path__, __name__)\n";

/* A module of the shim is the module of ours, and a program where ours is one. */
static const char module_format[] =
    "import importlib\n"
    "import sys\n"
    "\n"
    "_ours = importlib.import_module(\"ulpscope.compat.torch_musa.utils.%s\")\n"
    "if __name__ == \"__main__\":\n"
    "    sys.exit(_ours.main())\n"
    "sys.modules[__name__] = _ours\n";

static const char program_format[] =
    "#!/usr/bin/env python3\n"
    "import sys\n"
    "\n"
    "from ulpscope.compat.torch_musa.utils.%s import main\n"
    "\n"
    "sys.exit(main())\n";

bool compat_write_musa(const char *out)
{
    static const char *const modules[] = {"compare_tool", "simple_porting",
                                          "musa_converter", "musify_text"};
    static const char *const programs[][2] = {{"musa-converter", "musa_converter"},
                                              {"musify-text", "musify_text"}};
    char package[PATH_MAX], utils[PATH_MAX], bin[PATH_MAX], path[PATH_MAX], name[64];
    if (!compat_make(out, "torch_musa", package) ||
        !compat_make(package, "utils", utils) || !compat_make(out, "bin", bin) ||
        !compat_write(package, "__init__.py", package_text, NULL) ||
        !compat_write(utils, "__init__.py", utils_text, NULL))
        return false;
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        (void)snprintf(name, sizeof name, "%s.py", modules[i]);
        if (!compat_write(utils, name, module_format, modules[i])) return false;
    }
    for (size_t i = 0; i < sizeof programs / sizeof programs[0]; i++) {
        if (!compat_write(bin, programs[i][0], program_format, programs[i][1]))
            return false;
        if ((size_t)snprintf(path, sizeof path, "%s/%s", bin, programs[i][0]) >=
                sizeof path ||
            chmod(path, 0755) != 0)
            return false;
    }
    return true;
}
