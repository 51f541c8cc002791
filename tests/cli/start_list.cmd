ulpscope start </dev/null; ulpscope start the quick brown fox
