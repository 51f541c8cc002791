ulpscope help run
