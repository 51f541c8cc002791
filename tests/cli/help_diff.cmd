ulpscope diff --help
