ulpscope --frob report
