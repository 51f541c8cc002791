ulpscope show trace --json --call 1
