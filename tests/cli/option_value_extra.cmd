ulpscope report --strict=yes sample
