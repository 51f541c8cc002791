ulpscope sql --help
