ulpscope report sample --no-files --junit no/such/folder.xml
