ulpscope start NaN at step 400 -- torchrun --nproc-per-node 4 'my train.py'
