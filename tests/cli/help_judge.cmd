ulpscope help judge
