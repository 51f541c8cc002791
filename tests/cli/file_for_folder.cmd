echo mine >file; ulpscope show file; ulpscope check file --device cpu; ulpscope report file; ulpscope diff trace file; cat file
