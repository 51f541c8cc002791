ulpscope report sample --no-files --allow reduced --allow wrong:_fused_adamw_ --allow unjudged --allow unsupported >/dev/null
