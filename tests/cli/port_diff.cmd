mkdir -p ported && printf '#include "b.cuh"\nasm("x");\ncudaFree(p); // cudaFree\ncudaFree(q);\n' > ported/a.cu && printf 'int x;\n' > ported/b.cuh && printf '"""cuda"""\nimport torch\nx = torch.zeros(1, device="cuda:0").cuda()\n' > ported/t.py
ulpscope port ported --to musa --diff
