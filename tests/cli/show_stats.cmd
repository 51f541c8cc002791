ulpscope show trace --stats --limit 3
