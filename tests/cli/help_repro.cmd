ulpscope help repro
