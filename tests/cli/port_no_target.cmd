ulpscope port nowhere
