// SPDX-License-Identifier: Apache-2.0
// Whether NaN and Inf of a call are the device's fault: the one rule of `ulpscope
// overflow` and of the precheck's run_overflow_check; see overflow.h.
#include "overflow/overflow.h"

/* Why it is told as it is; the others say what the verdict on the call says. */
static const char none[] = "nothing overflows";
static const char honest[] = "an honest computation on the same inputs gives it as well";
static const char made_up[] =
    "on inputs drawn from statistics it stays finite; capture with data";
static const char changing[] =
    "run again it stays finite, as it should: the device gives "
    "different answers to the same call";
static const char elsewhere[] =
    "on the same inputs the true result is finite, and this device's is too";

/* Whether a verdict says nothing of the values: nobody judged them, or there were none.
 */
static bool is_silent(usc_verdict verdict)
{
    return verdict == USC_VERDICT_CRASHED || verdict == USC_VERDICT_TIMEOUT ||
           usc_verdict_missing(verdict) || verdict == USC_N_VERDICTS;
}

overflow_told overflow_tell(const overflow_evidence *e, const char **words)
{
    const bool now = e->n_nan_inf > 0 || e->verdict == USC_VERDICT_NONFINITE;
    *words = e->sentence;
    if (is_silent(e->verdict)) return OVERFLOW_UNTOLD;
    if (usc_verdict_flagged(e->verdict) && (now || e->seen)) return OVERFLOW_ABNORMAL;
    if (now || !e->seen) {
        *words = now ? honest : none;
        return OVERFLOW_NORMAL;
    }
    if (e->verdict == USC_VERDICT_UNDEFINED) return OVERFLOW_UNTOLD;
    if (e->made_up) {
        *words = made_up;
        return OVERFLOW_UNTOLD;
    }
    *words = e->home ? changing : elsewhere;
    return OVERFLOW_ABNORMAL;
}

const char *overflow_text(overflow_told told)
{
    static const char *const texts[] = {[OVERFLOW_UNTOLD] = "untold",
                                        [OVERFLOW_NORMAL] = "normal",
                                        [OVERFLOW_ABNORMAL] = "abnormal"};
    return texts[told];
}
