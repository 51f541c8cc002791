// SPDX-License-Identifier: Apache-2.0
// ulpscope config: what a command takes where nothing is typed, and where each value
// comes from.
#include "cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/config.h"

enum { OPT_JSON = 256 };

static const cli_entry own_options[] = {{OPT_JSON, "json", NULL, NULL, "one JSON object"},
                                        {0}};

static const cli_entry *const options[] = {own_options, NULL};

const cli_page cmd_config_page = {
    .command = "config",
    .usage = "[COMMAND] [--json]",
    .about =
        "Tells the defaults that this folder gives to options: those of ulpscope.toml, "
        "or "
        "of [tool.ulpscope] in pyproject.toml, in this folder or the nearest above it. "
        "With COMMAND: every option of it, its value and where that comes from.\n"
        "\n"
        "  device = \"npu:0\"      # of every command that has --device\n"
        "  import = [\"my_ops\"]   # as often as there are elements\n"
        "\n"
        "  [check]               # of ulpscope check alone; goes before the above\n"
        "  jobs = 4\n"
        "  verbose = true        # an option without a value\n"
        "\n"
        "What is typed goes before the file. A command says on stderr what it took from "
        "there. ULPSCOPE_CONFIG names another file; off, or ulpscope --no-config "
        "COMMAND, "
        "does without. A file of another user is not read.\n",
    .options = options,
    .examples = "  ulpscope config\n"
                "  ulpscope config check\n",
    .codes = "0 told, 2 a file of defaults is wrong, or there is no such command",
};

extern char **environ;

/* ---- one command ---- */

typedef struct row {
    const cli_entry *option;
    const cli_default *d; /* NULL: not in the file */
    char value[400];      /* cut, where a list is longer; "": none */
} row;

static row row_of(const cli_config *config, const cli_page *page, const cli_entry *option)
{
    row r = {.option = option, .d = cli_config_of(config, page, option), .value = ""};
    size_t n = 0;
    for (const cli_default *d = r.d; d != NULL; d = cli_config_next(config, d))
        if (d->text != NULL && n < sizeof r.value)
            n += (size_t)snprintf(r.value + n, sizeof r.value - n, "%s%s",
                                  n > 0 ? ", " : "", d->text);
    if (r.d == NULL && option->initial != NULL)
        (void)snprintf(r.value, sizeof r.value, "%s", option->initial);
    return r;
}

static void print_row(const row *r, const char *path)
{
    char from[40] = "";
    const char *none = r->option->value != NULL ? "-" : "no";
    if (r->d != NULL) (void)snprintf(from, sizeof from, ":%d", r->d->line);
    (void)printf("  --%-18s %-28s %s%s\n", r->option->name,
                 *r->value != '\0' ? r->value : none, r->d != NULL ? path : "built in",
                 from);
}

static void put_text_or_null(const char *name, const char *text)
{
    (void)printf("\"%s\": ", name);
    if (text != NULL)
        cli_put_text(stdout, text);
    else
        (void)fputs("null", stdout);
}

static void json_row(const row *r, bool first)
{
    (void)fputs(first ? "{" : ", {", stdout);
    put_text_or_null("name", r->option->name);
    (void)fputs(", ", stdout);
    put_text_or_null("value", *r->value != '\0' ? r->value : NULL);
    if (r->d != NULL)
        (void)printf(", \"from\": \"file\", \"line\": %d}", r->d->line);
    else
        (void)fputs(", \"from\": \"built in\", \"line\": null}", stdout);
}

static void tell_command(const cli_config *config, const cli_page *page, bool json)
{
    bool first = true;
    if (!json)
        (void)printf("ulpscope %s takes, where nothing is typed:\n", page->command);
    for (int l = 0; page->options[l] != NULL; l++)
        for (const cli_entry *e = page->options[l]; e->key != 0; e++) {
            if (e->name == NULL || e->help == NULL) continue; /* another name */
            const row r = row_of(config, page, e);
            if (json)
                json_row(&r, first);
            else
                print_row(&r, config->path);
            first = false;
        }
}

/* ---- all ---- */

static void tell_file(const cli_config *config)
{
    if (config->path == NULL) {
        (void)puts(
            "no ulpscope.toml, and no pyproject.toml with [tool.ulpscope], here or "
            "above");
        return;
    }
    (void)printf("%s gives:\n", config->path);
    if (config->n == 0) (void)puts("  nothing");
    for (size_t i = 0; i < config->n; i++) {
        const cli_default *d = &config->defaults[i];
        (void)printf("  line %-4d %-12s --%s %s\n", d->line,
                     d->command != NULL ? d->command : "all", d->name,
                     d->text == NULL ? "(none)" : d->text);
    }
}

static void tell_variables(void)
{
    bool any = false;
    for (char **v = environ; *v != NULL; v++) {
        if (strncmp(*v, "ULPSCOPE_", 9) != 0) continue;
        if (!any) (void)puts("variables that are set (docs/reference/variables.md):");
        any = true;
        (void)printf("  %s\n", *v);
    }
}

static void tell_json(const cli_config *config, const cli_page *page)
{
    (void)putchar('{');
    put_text_or_null("file", config->path);
    (void)fputs(", \"defaults\": [", stdout);
    for (size_t i = 0; i < config->n; i++) {
        const cli_default *d = &config->defaults[i];
        (void)fputs(i > 0 ? ", {" : "{", stdout);
        put_text_or_null("command", d->command);
        (void)fputs(", ", stdout);
        put_text_or_null("name", d->name);
        (void)fputs(", ", stdout);
        put_text_or_null("value", d->text);
        (void)printf(", \"line\": %d}", d->line);
    }
    (void)fputs("], ", stdout);
    put_text_or_null("command", page != NULL ? page->command : NULL);
    (void)fputs(", \"options\": [", stdout);
    if (page != NULL) tell_command(config, page, true);
    (void)puts("]}");
}

int cmd_config(int argc, char **argv)
{
    bool json = false;
    cli_begin("config");
    for (int key; (key = cli_next(&cmd_config_page, argc, argv)) != -1;) {
        if (key != OPT_JSON) return CLI_TROUBLE;
        json = true;
    }
    if (argc - optind > 1) return cli_fail("config takes one command");
    const cli_page *page = optind < argc ? cli_config_page(argv[optind]) : NULL;
    if (optind < argc && page == NULL) return cli_config_no_command(argv[optind]);
    cli_config config;
    int code = CLI_TROUBLE;
    if (cli_config_read(&config)) {
        code = CLI_SAME;
        if (config.passed != NULL)
            (void)fprintf(stderr,
                          "ulpscope config: %s is another user's and is not read\n",
                          config.passed);
        if (json)
            tell_json(&config, page);
        else if (page != NULL)
            tell_command(&config, page, false);
        else {
            tell_file(&config);
            tell_variables();
        }
    }
    cli_config_free(&config);
    return cli_close_output(code);
}
