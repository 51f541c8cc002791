ulpscope judge sample trace
