ulpscope show trace --ops 'add' --module 'layers.*'
