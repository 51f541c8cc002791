ulpscope show trace --ops
