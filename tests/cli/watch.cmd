(echo step,grad_norm; i=0; while [ $i -lt 60 ]; do echo "$i,1.$((i % 5))"; i=$((i + 1)); done; echo 60,9000; echo 61,1.2) >n.csv; ulpscope watch n.csv --detector temporal,nan
