// SPDX-License-Identifier: Apache-2.0
// ulpscope completion SHELL: a script that completes commands and options. It asks the
// program's own help, so that it cannot fall behind it.
#include "cli.h"

#include <string.h>

static const cli_entry *const options[] = {NULL};

const cli_page cmd_completion_page = {
    .command = "completion",
    .usage = "bash|zsh|fish",
    .about = "Prints a script that completes commands and options in that shell.\n",
    .options = options,
    .examples = "  eval \"$(ulpscope completion bash)\"             in ~/.bashrc\n"
                "  eval \"$(ulpscope completion zsh)\"              in ~/.zshrc\n"
                "  ulpscope completion fish | source              in config.fish\n",
    .codes = "0 printed, 2 there is no such shell",
};

static const char bash_script[] =
    "_ulpscope() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
    "        words=$(ulpscope --help | sed -n 's/^  \\([a-z]*\\)  .*/\\1/p')\n"
    "    elif [[ $word == -* ]]; then\n"
    "        words=$(ulpscope help \"${COMP_WORDS[1]}\" 2>/dev/null |\n"
    "            grep -oE -e '(^| |\\[)--[a-z-]+' | tr -d ' [')\n"
    "    elif [ \"${COMP_WORDS[1]}\" = explain ]; then\n"
    "        words=$(ulpscope explain --words | grep -v ' ')\n"
    "    fi\n"
    "    COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
    "}\n"
    "complete -o default -F _ulpscope ulpscope\n";

static const char fish_script[] =
    "function __ulpscope_options\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and ulpscope help $words[2] 2>/dev/null |\n"
    "        string match -ra -- '--[a-z-]+' | sort -u\n"
    "end\n"
    "complete -c ulpscope -n __fish_use_subcommand -f -a \"(ulpscope --help |\n"
    "    string replace -rf '^  ([a-z]+)  +(.*)' '\\$1\\t\\$2')\"\n"
    "complete -c ulpscope -n '__fish_seen_subcommand_from explain' -f \\\n"
    "    -a '(ulpscope explain --words)'\n"
    "complete -c ulpscope -n 'string match -q -- \"-*\" (commandline -ct)' -f \\\n"
    "    -a '(__ulpscope_options)'\n";

int cmd_completion(int argc, char **argv)
{
    if (argc != 2) return cli_fail("completion needs the shell: bash, zsh or fish");
    const char *shell = argv[1];
    if (strcmp(shell, "zsh") == 0)
        fputs("autoload -Uz +X bashcompinit && bashcompinit\n", stdout);
    if (strcmp(shell, "bash") == 0 || strcmp(shell, "zsh") == 0)
        fputs(bash_script, stdout);
    else if (strcmp(shell, "fish") == 0)
        fputs(fish_script, stdout);
    else
        return cli_fail("no completion for '%s': there are bash, zsh and fish", shell);
    return cli_close_output(CLI_SAME);
}
