ulpscope check --help
