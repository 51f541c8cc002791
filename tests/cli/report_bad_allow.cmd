ulpscope report sample --allow redused
