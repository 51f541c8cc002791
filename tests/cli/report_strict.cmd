ulpscope report sample --no-files --allow reduced --allow wrong --strict >/dev/null
