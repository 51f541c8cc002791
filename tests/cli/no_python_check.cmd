ulpscope check trace --device sim:0
