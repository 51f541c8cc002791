ulpscope help capture
