ulpscope report sample --baseline sample --no-files | tail -n 5
