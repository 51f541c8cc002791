// SPDX-License-Identifier: Apache-2.0
// What planted faults do to a collective of simccl: the table is fault_table.c, the
// arithmetic on numbers fault_apply.c.
#include "ccl_shared.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static usc_sim_stage stage_of(const ccl_faults *f, size_t i)
{
    return usc_sim_fault_info_of(f->hits[i].kind)->stage;
}

static void note(ccl_faults *f, size_t i, int result)
{
    if (result > f->results[i]) f->results[i] = result;
}

/* What a kind makes of the exchange; whether bits changed by it nobody looks at. */
static void arrange(ccl_faults *f, size_t i)
{
    const usc_sim_fault *hit = &f->hits[i];
    switch ((int)hit->kind) {
    case USC_SIM_FAULT_RANK_LOST:
        f->lost = (int)hit->params[0];
        break;
    case USC_SIM_FAULT_RANK_TWICE:
        f->twice = (int)hit->params[0];
        f->instead = (int)hit->params[1];
        break;
    case USC_SIM_FAULT_RANKS_BF16:
        f->in_bf16 = true;
        break;
    case USC_SIM_FAULT_RANKS_STALE:
        f->is_stale = true;
        break;
    case USC_SIM_FAULT_RANKS_SUM:
        f->is_sum = true;
        break;
    case USC_SIM_FAULT_RANKS_AGAIN:
        f->is_twice = true;
        break;
    case USC_SIM_FAULT_RANKS_LAST:
        f->is_last = true;
        break;
    default:
        return;
    }
    note(f, i, 1);
}

static usc_status refuse(ccl_faults *f, usc_status st, const char *name, usc_error *err)
{
    ccl_faults_drop(f);
    return usc_error_set(err, st, -1,
                         st == USC_E_NOMEM ? "%s: no memory for its faults"
                         : st == USC_E_IO  ? "sim: interrupted while %s hangs"
                                           : "%s is not there on this device",
                         name);
}

usc_status ccl_faults_begin(ccl_faults *f, usc_ccl_kind kind, usc_error *err)
{
    char name[48];
    snprintf(name, sizeof name, "simccl::%s", usc_ccl_kind_name(kind));
    *f = (ccl_faults){.lost = -1, .twice = -1, .instead = -1};
    const usc_sim_call call = {.op = name, .stream = -1, .dtype = USC_DTYPE_NONE};
    f->n = usc_sim_fault_select(&call, &f->hits);
    f->results = f->n > 0 ? malloc(f->n * sizeof *f->results) : NULL;
    if (f->n > 0 && f->results == NULL) return refuse(f, USC_E_NOMEM, name, err);
    for (size_t i = 0; i < f->n; i++) {
        f->results[i] = -1;
        const usc_sim_fault_kind its = f->hits[i].kind;
        const bool ends = its == USC_SIM_FAULT_CRASH || its == USC_SIM_FAULT_HANG ||
                          its == USC_SIM_FAULT_LACKING;
        if (ends) usc_sim_fault_note(f->hits[i].id, true);
        if (its == USC_SIM_FAULT_CRASH) usc_sim_crash();
        if (its == USC_SIM_FAULT_HANG) {
            usc_sim_hang();
            return refuse(f, USC_E_IO, name, err);
        }
        if (its == USC_SIM_FAULT_LACKING) return refuse(f, USC_E_UNSUPPORTED, name, err);
        arrange(f, i);
    }
    return USC_OK;
}

/* What the kind changes of these bytes. */
static void apply(ccl_faults *f, size_t i, usc_dtype dtype, void *data, size_t size)
{
    if (dtype == USC_DTYPE_NONE || size == 0) return;
    const usc_sim_elements e = {dtype, data, NULL, size / usc_dtype_info_of(dtype)->size,
                                0};
    note(f, i, usc_sim_fault_apply(&f->hits[i], &e));
}

void ccl_faults_input(ccl_faults *f, usc_dtype dtype, void *data, size_t size)
{
    for (size_t i = 0; i < f->n; i++)
        if (stage_of(f, i) == USC_SIM_STAGE_INPUT) apply(f, i, dtype, data, size);
}

/* Gives what came the time before, as far as that reaches, and keeps what came now. */
static void give_last(const usc_ccl_buffer *to, size_t n_to, ccl_last *last)
{
    size_t size = 0;
    for (size_t k = 0; k < n_to; k++)
        size += to[k].size;
    char *now = size > 0 ? malloc(size) : NULL;
    if (now == NULL) return;
    for (size_t k = 0, at = 0; k < n_to; at += to[k++].size) {
        memcpy(now + at, to[k].at, to[k].size);
        const size_t there = last->size > at ? last->size - at : 0;
        if (there > 0)
            memcpy(to[k].at, last->at + at, there < to[k].size ? there : to[k].size);
    }
    free(last->at);
    *last = (ccl_last){now, size};
}

void ccl_faults_end(ccl_faults *f, usc_dtype dtype, const usc_ccl_buffer *to, size_t n_to,
                    ccl_last *last)
{
    if (f->is_last) give_last(to, n_to, last);
    for (size_t i = 0; i < f->n; i++) {
        for (size_t k = 0; stage_of(f, i) == USC_SIM_STAGE_OUTPUT && k < n_to; k++)
            apply(f, i, dtype, to[k].at, to[k].size);
        if (f->results[i] >= 0) usc_sim_fault_note(f->hits[i].id, f->results[i] > 0);
    }
    ccl_faults_drop(f);
}

void ccl_faults_drop(ccl_faults *f)
{
    free(f->hits);
    free(f->results);
    f->hits = NULL;
    f->results = NULL;
    f->n = 0;
}
