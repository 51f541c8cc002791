ulpscope show trace --phase sideways
