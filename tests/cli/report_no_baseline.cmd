ulpscope report sample --baseline missing.json
