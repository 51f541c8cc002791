ulpscope help report
