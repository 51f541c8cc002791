ulpscope help export
