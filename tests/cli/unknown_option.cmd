ulpscope report sample --frob
