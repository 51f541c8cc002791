ulpscope show trace --ops 'a,,b'
