echo "loss 2" >one.log; : >empty.log; ulpscope loss one.log empty.log
