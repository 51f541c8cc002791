mkdir -p ported2 && printf 'cudaFrob(p);\ncudaFree(p);\n' > ported2/a.cu
ulpscope port ported2 --to xpu --dry-run --json
