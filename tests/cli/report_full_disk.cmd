ulpscope report sample --no-files >/dev/full
