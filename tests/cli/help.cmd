ulpscope --help
