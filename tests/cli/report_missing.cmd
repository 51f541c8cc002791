ulpscope report nowhere
