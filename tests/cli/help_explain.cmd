ulpscope explain --help
