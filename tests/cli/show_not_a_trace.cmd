ulpscope show nothing
