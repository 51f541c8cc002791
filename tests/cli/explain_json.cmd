ulpscope explain overflow --json
