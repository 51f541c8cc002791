ulpscope schema --help
