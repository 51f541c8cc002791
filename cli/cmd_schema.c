// SPDX-License-Identifier: Apache-2.0
// ulpscope schema: what a command's JSON holds, as a JSON Schema.
#include "cli.h"

#include <string.h>

static const cli_entry *const options[] = {NULL};

const cli_page cmd_schema_page = {
    .command = "schema",
    .usage = "[COMMAND]",
    .about = "Prints the JSON Schema (2020-12) of what a command writes with --json, of "
             "check, "
             "judge and report that of OUT/result.json. Without a command: which there "
             "are, and whether it is one object or one a line.\n"
             "\n"
             "A later version may add members; it takes none out and changes none.\n",
    .options = options,
    .examples = "  ulpscope schema\n"
                "  ulpscope schema check > result.schema.json\n",
    .codes = "0 printed, 2 there is no such command, or it writes no JSON",
};

/* What the build makes of schema/NAME.json (cmake/embed.cmake), and whose it is. */
#define FILES(X)                                                                         \
    X(bisect)                                                                            \
    X(config)                                                                            \
    X(coverage)                                                                          \
    X(diff)                                                                              \
    X(doctor)                                                                            \
    X(env)                                                                               \
    X(explain)                                                                           \
    X(fuzz)                                                                              \
    X(info) X(loss) X(ops) X(overflow) X(port) X(result) X(show) X(sql) X(trial) X(watch)
#define DECLARE(name) extern const char usc_page_##name##_json[];
FILES(DECLARE)
#undef DECLARE

static const struct {
    const char *command, *text;
} schemas[] = {
#define ROW(name) {#name, usc_page_##name##_json},
    FILES(ROW)
#undef ROW
        {"check", usc_page_result_json},
    {"judge", usc_page_result_json},
    {"report", usc_page_result_json},
};
enum { N_SCHEMAS = sizeof schemas / sizeof schemas[0] };

/* The text of a member of the first level, which stands on a line of its own. */
static void print_member(const char *schema, const char *name)
{
    const char *at = strstr(schema, name);
    if (at != NULL) at = strchr(at + strlen(name), '"');
    if (at != NULL) (void)printf("%.*s", (int)strcspn(at + 1, "\""), at + 1);
}

static void print_list(void)
{
    for (int i = 0; i < N_SCHEMAS; i++) {
        (void)printf("%-10s ", schemas[i].command);
        print_member(schemas[i].text, "\"$comment\": ");
        (void)fputs(": ", stdout);
        print_member(schemas[i].text, "\"title\": ");
        putchar('\n');
    }
}

int cmd_schema(int argc, char **argv)
{
    if (cli_next(&cmd_schema_page, argc, argv) != -1) return CLI_TROUBLE;
    if (argc - optind > 1) return cli_fail("schema takes one command");
    if (optind == argc) {
        print_list();
        return cli_close_output(CLI_SAME);
    }
    const char *command = argv[optind], *best = NULL;
    for (int i = 0; i < N_SCHEMAS; i++) {
        if (strcmp(schemas[i].command, command) == 0) {
            (void)fputs(schemas[i].text, stdout);
            return cli_close_output(CLI_SAME);
        }
        (void)cli_nearer(command, schemas[i].command, &best);
    }
    if (best != NULL)
        return cli_fail("there is no schema of '%s'; did you mean %s?", command, best);
    return cli_fail("there is no schema of '%s': no such command, or it writes no JSON; "
                    "ulpscope schema lists those there are",
                    command);
}
