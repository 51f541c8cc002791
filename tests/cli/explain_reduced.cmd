ulpscope explain reduced
