ulpscope import nothing -o x
