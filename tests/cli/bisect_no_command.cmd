ulpscope bisect
