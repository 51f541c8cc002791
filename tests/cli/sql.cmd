ulpscope sql sample "select op, verdict, count(*) as calls, min(bits) as bits from verdicts where flagged group by 1, 2"
