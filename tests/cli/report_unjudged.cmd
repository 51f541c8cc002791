ulpscope report sample --no-files --allow reduced --allow wrong --allow unjudged:dropout | tail -n 3
