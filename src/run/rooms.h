// SPDX-License-Identifier: Apache-2.0
// Memory that all workers share: what a call may need, and who has to wait. A call that
// needs more than is left waits until others are done; one that needs more than there is
// works alone, within what there is.
#ifndef USC_RUN_ROOMS_H
#define USC_RUN_ROOMS_H

#include <ulpscope/call.h>

/** Bytes that the check of a call may take, by the sizes of its tensors. */
int64_t usc_room_of_call(const usc_call *call);

/** The same for a call or a forward that was picked. */
int64_t usc_room_of_pick(const usc_calls *calls, const usc_pick *pick);

/** Whether what needs `need` bytes may begin beside others that hold `held`; alone it
 * may in any case. */
bool usc_room_admits(int64_t budget, int64_t need, int64_t held);

/** What the control groups leave that the file `groups` names and that lie below `root`;
 * INT64_MAX where they set no limit. */
int64_t usc_memory_of_groups(const char *root, const char *groups);

#endif
