for i in 1 2 3 4 5 6 7 8 9; do echo "{\"step\": $i, \"g\": 2.$i}"; done >n.jsonl; ulpscope watch n.jsonl --key g --json
