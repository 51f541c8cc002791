ulpscope watch
