ulpscope capture -- true
