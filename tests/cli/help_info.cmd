ulpscope info --help
