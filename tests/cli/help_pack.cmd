ulpscope help pack
