ulpscope watch run.watch.jsonl; ulpscope watch
