ulpscope loss --help
