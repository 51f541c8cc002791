ulpscope export trace --format perfetto; ulpscope export trace
