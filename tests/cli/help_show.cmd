ulpscope show -h
