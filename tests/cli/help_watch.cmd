ulpscope watch --help
