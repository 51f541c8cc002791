ulpscope export trace --format perfetto -o events.json && head -c 700 events.json && grep -c "is born" events.json
