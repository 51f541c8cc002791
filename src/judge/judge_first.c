// SPDX-License-Identifier: Apache-2.0
// The first replay, which comes with its look. Neighbours: judge_replay.c (what replays
// add up to), judge_rule.c (the look).
#include "base/float_env.h"
#include "judge/judge_state.h"

#include <assert.h>
#include <string.h>

usc_status usc_judge_first(usc_judge *judge, const usc_tensor *reference_1,
                           const usc_tensor *yardstick_1, usc_judgement *out,
                           usc_error *err)
{
    assert(judge);
    assert(reference_1 && yardstick_1);
    assert(out);
    memset(out, 0, sizeof *out);
    if (judge->n_replays != 0)
        return usc_error_set(err, USC_E_ARG, -1, "%d replays came before the first",
                             judge->n_replays);
    const usc_tensor *like = &judge->device;
    usc_status st =
        usc_judge_check("reference of a replay", reference_1, like, false, err);
    if (st == USC_OK)
        st = usc_judge_check("yardstick of a replay", yardstick_1, like, true, err);
    if (st != USC_OK) return st;
    judge->n_replays = 1;
    judge->lazy = judge->n > 0;
    if (judge->lazy) {
        judge->rk = usc_walk_over(reference_1);
        judge->yk = usc_walk_over(yardstick_1);
        const usc_float_env env = usc_float_env_enter();
        judge->exact = judge->exact && usc_judge_equal(judge, &judge->rk, &judge->yk);
        usc_float_env_leave(env);
    }
    return usc_judge_look(judge, out, err);
}
