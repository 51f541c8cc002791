ulpscope doctor --help
