ulpscope show trace#99
