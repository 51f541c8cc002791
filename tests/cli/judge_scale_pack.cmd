ulpscope judge sample trace --scale x
