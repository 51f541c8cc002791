ulpscope explain the result is multiplied by -1
