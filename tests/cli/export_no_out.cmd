ulpscope export trace
