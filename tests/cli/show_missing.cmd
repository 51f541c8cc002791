ulpscope show nowhere
