ulpscope explain 'inputs rounded to TF32: q and k'
