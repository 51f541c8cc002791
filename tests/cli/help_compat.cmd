ulpscope help compat
