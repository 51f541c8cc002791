ulpscope report sample --no-files --allow reduced --allow wrong:_fused_adamw_ >/dev/null
