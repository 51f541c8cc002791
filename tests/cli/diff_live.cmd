ulpscope diff --live trace -- python train.py
