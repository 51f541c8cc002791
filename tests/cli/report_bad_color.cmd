ulpscope report sample --color blue
