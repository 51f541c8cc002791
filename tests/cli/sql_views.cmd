ulpscope sql trace
