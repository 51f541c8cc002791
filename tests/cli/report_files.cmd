ulpscope report sample >/dev/null; ls sample
