ulpscope help start
