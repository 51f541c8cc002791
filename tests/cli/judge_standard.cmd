ulpscope judge a b --standard wrong
