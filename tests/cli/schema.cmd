ulpscope schema
