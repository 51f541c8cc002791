ulpscope report nothing
