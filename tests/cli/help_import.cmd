ulpscope help import
