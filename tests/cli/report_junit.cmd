ulpscope report sample --no-files --junit junit.xml --annotate | grep -v "^ " | head -n 3; head -n 8 junit.xml | sed "s/timestamp=\"[^\"]*\"//"
