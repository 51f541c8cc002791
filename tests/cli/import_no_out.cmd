ulpscope import nothing
