for i in 1 2 3 4 5 6 7 8 9; do echo "step $i loss 2.$((9-i))"; done >a.log; sed "s/loss 2.2/loss 4.2/" a.log >b.log; ulpscope loss a.log b.log
