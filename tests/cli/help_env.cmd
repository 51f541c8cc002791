ulpscope env --help
