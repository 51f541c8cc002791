ulpscope report sample --no-files --color always | head -3
