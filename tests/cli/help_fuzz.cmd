ulpscope fuzz --help
