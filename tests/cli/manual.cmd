ulpscope help --man report | head -n 6
ulpscope help --man report | grep -c '^\.' # every other line is text
for c in capture check report pack judge show repro info completion; do ulpscope help --man $c; done | grep -cE "^'"
ulpscope help --man nosuch
