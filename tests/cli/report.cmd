ulpscope report sample --no-files
