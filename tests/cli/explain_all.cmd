ulpscope explain
