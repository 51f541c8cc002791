ulpscope watch x.jsonl --config cooldowns:5
