ulpscope sql trace 'delete from calls'
