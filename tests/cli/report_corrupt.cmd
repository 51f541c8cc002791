ulpscope report corrupt
