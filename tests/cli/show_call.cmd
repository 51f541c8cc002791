ulpscope show trace#3 --stats
