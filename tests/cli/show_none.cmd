ulpscope show trace --ops relu
