for shell in bash zsh; do ulpscope completion $shell >$shell; done
tail -n +2 zsh | cmp - bash
ulpscope completion fish | grep -c '^complete -c ulpscope'
bash -c '. ./bash
try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _ulpscope; echo "$* -> ${COMPREPLY[*]}"; }
try ulpscope c; try ulpscope show --s; try ulpscope nosuch --s'
ulpscope completion ksh
