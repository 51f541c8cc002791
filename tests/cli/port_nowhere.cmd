ulpscope port nowhere --to musa
