ulpscope port --help
