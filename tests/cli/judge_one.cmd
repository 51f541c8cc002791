ulpscope judge one
