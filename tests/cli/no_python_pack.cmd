ulpscope pack trace -o pack
