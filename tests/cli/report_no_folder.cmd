ulpscope report
