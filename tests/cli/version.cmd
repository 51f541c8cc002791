ulpscope --version
