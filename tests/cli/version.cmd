ulpscope --version; mkdir -p cache/torch-2.13.0+cpu-ulpscope-0.2.0-00 cache/torch-9-ulpscope-0.0.1-00; for n in intercept sim; do touch cache/torch-9-ulpscope-0.0.1-00/usc_glue_$n.so; done
touch cache/torch-2.13.0+cpu-ulpscope-0.2.0-00/usc_glue_sim.so; ULPSCOPE_CACHE=cache ulpscope -V
