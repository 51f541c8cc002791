ulpscope help frobnicate
