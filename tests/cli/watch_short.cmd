printf '{"step": 1, "g": 2}\n{"step": 2, "g": 2.5}\n' >n.jsonl; ulpscope watch n.jsonl --key g
