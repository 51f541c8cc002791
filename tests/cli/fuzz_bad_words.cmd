ulpscope fuzz
ulpscope fuzz --device sim:0 minimise 0:1
ulpscope fuzz --device sim:0 replay
ulpscope fuzz --device sim:0 replay 0:x --trace sample
ulpscope fuzz --device sim:0 replay nothing/cases.txt --trace sample
printf '# mended\n0:12 wrong\n0.13 wrong\n' > cases.txt
ulpscope fuzz --device sim:0 replay cases.txt --trace sample
printf '0:12\n0:13\n' > cases.txt
ulpscope fuzz --device sim:0 minimize cases.txt --trace sample
ulpscope fuzz --device cuda:0 --faults mm:tf32
ulpscope fuzz --device sim:0 --time soon
ulpscope fuzz --device sim:0 --cases 0
ulpscope fuzz --device sim:0 --ops 'mm,,' --trace sample
