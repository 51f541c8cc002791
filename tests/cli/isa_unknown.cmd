ULPSCOPE_ISA=sse9 ulpscope show trace
