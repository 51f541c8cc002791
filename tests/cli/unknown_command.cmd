ulpscope chek
