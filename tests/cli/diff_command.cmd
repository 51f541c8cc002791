ulpscope diff trace -- python train.py
