ulpscope schema capture
