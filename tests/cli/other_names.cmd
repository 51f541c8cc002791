ulpscope check trace --device sim:0 --time soon; ulpscope fuzz --device sim:0 --budget soon
