ulpscope show trace --limit many
