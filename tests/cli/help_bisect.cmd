ulpscope bisect --help
