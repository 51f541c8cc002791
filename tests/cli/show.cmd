ulpscope show trace --limit 4
