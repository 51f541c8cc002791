ulpscope export trace -o x --format csv
