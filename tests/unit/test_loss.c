// SPDX-License-Identifier: Apache-2.0
// ulpscope/x/loss.h: what is read out of the files that training programs write, and the
// sentences on those from which nothing can be read. What comparisons give is held to a
// definition in NumPy by tests/py/test_loss.py.
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include <ulpscope/x/loss.h>

/* A text, what is asked for, and the points "step:value ..."; or part of the error. */
typedef struct sample {
    const char *name, *text, *key, *regex, *points, *error;
} sample;

static const sample samples[] = {
    {"named columns", "step,lr,loss\n0,1,2.5\n10,1,2.25\n", 0, 0, "0:2.5 10:2.25", 0},
    {"tabs, a key", "a\tb c\n1\t2\n3\t4\n", "b c", 0, "0:2 1:4", 0},
    {"quotes of W&B", "\"Step\",\"run - train/loss\"\n\"3\",\"1.5\"\n", 0, 0, "3:1.5", 0},
    {"no names", "0 , 2.5\n1 , nan\n", 0, 0, "0:2.5 1:nan", 0},
    {"one column", "2.5\n2\n", 0, 0, "0:2.5 1:2", 0},
    {"TensorBoard's CSV", "Wall time,Step,Value\n1e9,5,2.5\n", 0, 0, "5:2.5", 0},
    {"the train loss before the other", "step,eval_loss,train_loss\n1,9,2\n", 0, 0, "1:2",
     0},
    {"an empty cell", "step,loss\n1,2\n2,\n3,4\n", 0, 0, "1:2 3:4", 0},
    {"JSON lines", "{\"step\": 1, \"loss\": 2.5}\n{\"step\": 2, \"loss\": NaN}\n", 0, 0,
     "1:2.5 2:nan", 0},
    {"inner keys", "{\"train\": {\"loss\": 2}}\n{\"train\": {\"loss\": 3}}", 0, 0,
     "0:2 1:3", 0},
    {"a list of numbers", "[2.5, -Infinity, 1]", 0, 0, "0:2.5 1:-inf 2:1", 0},
    {"an object of lists", "{\"step\": [4, 5], \"loss\": [2, 1]}", 0, 0, "4:2 5:1", 0},
    {"a Trainer's state",
     "{\"epoch\": 1, \"log_history\": [\n{\"loss\": 2, \"step\": 10},\n{\"eval_loss\": "
     "9, "
     "\"step\": 10}, {\"train_loss\": 7, \"step\": 11}]}",
     0, 0, "10:2", 0},
    {"a line that is no JSON", "{\"loss\": 2}\n{\"loss\"\n{\"loss\": 3}\n", 0, 0,
     "0:2 1:3", 0},
    {"a Trainer's log",
     "go\n{'loss': 2.5, 'epoch': 0.1}\r\n{'eval_loss': 1}\n{'loss': 2}", 0, 0,
     "0:2.5 1:2", 0},
    {"Megatron's log",
     " iteration       10/     100 | elapsed time per iteration (ms): 12.3 | lm loss: "
     "1.25E+00 | loss scale: 4096.0 |\n validation loss at iteration 10 | lm loss value: "
     "3 |\n"
     " iteration       20/     100 | lm loss: 1.0E+00 | loss scale: 4096.0 |\n",
     0, 0, "10:1.25 20:1", 0},
    {"words", "step 3 loss 2.5\nstep 4 loss 2.25\n", 0, 0, "3:2.5 4:2.25", 0},
    {"a tensor", "Step: 1,000 Loss: tensor(2.5, grad_fn=<X>)\n", 0, 0, "1000:2.5", 0},
    {"a progress bar", " 1/9 [00:01<00:09,  1.2it/s, loss=2.5]\r 2/9 [00:02<, loss=2]\r",
     0, 0, "1:2.5 2:2", 0},
    {"a bar that begins with its share",
     "Steps:  1%|# | 1/150 [00:01<, lr=1e-5, step_loss=2.5]\r"
     "Steps:  1%|# | 2/150 [00:02<, lr=1e-5, step_loss=2]\r",
     0, 0, "1:2.5 2:2", 0},
    {"whose loss it is, behind it",
     "iter 1 step 0 | loss train: 2.500, val: n/a | loss scale: 9\n"
     "iter 2 step 0 | loss train: 2.250, val: n/a | loss scale: 9\n",
     0, 0, "1:2.5 2:2.25", 0},
    {"a metric of MLflow", "1795950000000 2.5 0\n1795950001200 2.25 10\n", "x", 0,
     "0:2.5 10:2.25", 0},
    {"another metric", "1795950000000 2.5 0\n1795950001200 2.25 10\n", 0, 0, 0,
     "nothing in this metric of MLflow is called loss; name one with --key: there are "
     "'x'"},
    {"three numbers that are none", "1 2.5 0\n2 2.25 10\n", 0, 0, 0,
     "no loss with a number in this log"},
    {"colours", "\033[32mloss\033[0m: \033[1m2.5\033[0m", 0, 0, "0:2.5", 0},
    {"moves of the cursor", "\033[A\033[2K\0337step 3 loss 2.5\033[K me\n", 0, 0, "3:2.5",
     0},
    {"JSON in a log", "x {\"loss\": 2.5}\ny {\"loss\": 2}", 0, 0, "0:2.5 1:2", 0},
    {"a word of one's own", "nll 2.5 loss 9\nnll 2", "nll", 0, "0:2.5 1:2", 0},
    {"a regex", "a=7 nll:2.5\nz\na=8 nll:2", 0, "a=(?P<step>\\d+) nll:(?P<loss>[\\d.]+)",
     "7:2.5 8:2", 0},
    {"a regex without names", "nll 2.5\n", 0, "nll (\\S+)", "0:2.5", 0},
    {"a resumed run", "1,5\n2,4\n3,3\n2,4.5\n3,3.5\n", 0, 0, "1:5 2:4.5 3:3.5", 0},
    {"a run that was resumed late", "1,5\n2,4\n3,3\n4,2\n3,3.5\n4,2.5\n", 0, 0,
     "1:5 2:4 3:3.5 4:2.5", 0},
    {"ranks in one log",
     "step 1 loss 4\nstep 1 loss 4\nstep 2 loss 3\nstep 1 loss 4\nstep 2 loss 3\n"
     "step 3 loss 2\nstep 3 loss 2\nstep 2 loss 3\nstep 3 loss 2\n",
     0, 0, "1:4 2:3 3:2", 0},
    {"steps within epochs",
     "epoch 0 step 0 loss 6\nepoch 0 step 1 loss 5\nepoch 0 step 2 loss 4\n"
     "epoch 1 step 0 loss 3\nepoch 1 step 1 loss 2\nepoch 1 step 2 loss 1\n",
     0, 0, "0:6 1:5 2:4 3:3 4:2 5:1", 0},
    {"rows within epochs", "step,loss\n1,6\n2,5\n1,4\n2,3\n1,2\n2,1\n", 0, 0,
     "0:6 1:5 2:4 3:3 4:2 5:1", 0},
    {"a bar for each epoch",
     "1/2 [==>...] - loss: 2.5\r2/2 [====] - loss: 2\r2/2 [====] - loss: 2\n"
     "1/2 [==>...] - loss: 1.5\r2/2 [====] - loss: 1\n",
     0, 0, "0:2.5 1:2 2:1.5 3:1", 0},
    {"the end of each epoch",
     "Epoch 1/3\n9/9 [==] - loss: 2.5\nEpoch 2/3\n9/9 [==] - loss: 2\nEpoch 3/3\n"
     "9/9 [==] - loss: 1.5\n",
     0, 0, "0:2.5 1:2 2:1.5", 0},
    {"some lines without a step", "step 1 loss 3\nloss 9\nstep 2 loss 2\nstep 3 loss 1\n",
     0, 0, "1:3 2:2 3:1", 0},
    {"W&B's columns beside a run",
     "Step,run - loss,run - loss__MIN,run - loss__MAX,run - loss__step\n3,2.5,2,3,3\n", 0,
     0, "3:2.5", 0},
    {"two runs of W&B", "Step,a - loss,b - loss\n1,2.5,3.5\n2,2.25,3\n", 0, 0, 0,
     "several losses: 'a - loss' (2 values), 'b - loss' (2); say which with --key"},
    {"one of two runs", "Step,a - loss,b - loss\n1,2.5,3.5\n2,2.25,3\n", "b - loss", 0,
     "1:3.5 2:3", 0},
    {"two runs under one key", "Step,a - loss,b - loss\n1,2,3\n2,3,4\n", "loss", 0, 0,
     "several losses"},
    {"a run called after its evaluation", "Step,eval 3 - loss\n1,2.5\n", 0, 0, "1:2.5",
     0},
    {"two tags of one leaf", "step,actor/loss,critic/loss\n1,2.5,3.5\n", 0, 0, 0,
     "several losses"},
    {"parts without their sum", "step,mae_loss,mse_loss\n1,2.5,3.5\n", 0, 0, 0,
     "several losses"},
    {"parts beside the loss", "step,mae_loss,mse_loss,loss\n1,2.5,3.5,6\n", 0, 0, "1:6",
     0},
    {"tokens for steps", "tokens,loss\n4096,2.5\n8192,2\n", 0, 0, "4096:2.5 8192:2", 0},
    {"steps before tokens", "tokens,step,loss\n4096,1,2.5\n8192,2,2\n", 0, 0, "1:2.5 2:2",
     0},
    {"steps before epochs",
     "epoch,step,train_loss_epoch,train_loss_step\n0,1,,2.5\n0,2,,2.25\n0,3,,2.125\n"
     "0,3,2.5,\n",
     0, 0, "1:2.5 2:2.25 3:2.125", 0},
    {"more digits before fewer",
     "global_step=1, loss=2.3, reduced_train_loss=2.312\n"
     "global_step=2, loss=2.2, reduced_train_loss=2.243\n",
     0, 0, "1:2.312 2:2.243", 0},
    {"more digits of most values",
     "global_step=1, loss=10.02, reduced_train_loss=10.0189\n"
     "global_step=2, loss=2.33, reduced_train_loss=2.3262\n"
     "global_step=3, loss=2.21, reduced_train_loss=2.2135\n",
     0, 0, "1:10.0189 2:2.3262 3:2.2135", 0},
    {"the loss before a part of it", "step,aux_loss,train/total_loss\n1,0.1234,2.5\n", 0,
     0, "1:2.5", 0},
    {"training before what has more values",
     "step,loss,val_loss\n1,2.5,3.125\n2,,3.25\n3,,3.125\n4,,3\n", 0, 0, "1:2.5", 0},
    {"steps of their number",
     "{\"loss\": 2.5, \"global_step/max_steps\": \"5/100\"}\n"
     "{\"loss\": 2, \"global_step/max_steps\": \"10/100\"}\n",
     0, 0, "5:2.5 10:2", 0},
    {"the same in a log",
     "{'loss': 2.5, 'global_step/max_steps': '5/100', 'iter/s': 3}\n"
     "{'loss': 2, 'global_step/max_steps': '10/100', 'iter/s': 3}\n",
     0, 0, "5:2.5 10:2", 0},
    {"and in a table", "step,loss\n5/100,2.5\n10/100,2\n", 0, 0, "5:2.5 10:2", 0},
    {"brackets of a step",
     "epoch: 1 step:[  1/ 200], loss:[2.5/2.75]\n"
     "epoch: 1 step:[  2/ 200], loss:[2/2.25]\n",
     0, 0, "1:2.5 2:2", 0},
    {"steps counted on over epochs",
     "Epoch(train) [1][ 50/100]  lr: 2e-02  loss: 2.5\n"
     "Epoch(train) [1][100/100]  lr: 2e-02  loss: 2.25\n"
     "Epoch(train) [2][ 50/100]  lr: 2e-02  loss: 2\n",
     0, 0, "150:2.5 200:2.25 250:2", 0},
    {"and where steps are named",
     "Epoch [1/3], Step [50/100], Loss: 3\nEpoch [1/3], Step [100/100], Loss: 2\n"
     "Epoch [2/3], Step [50/100], Loss: 1\n",
     0, 0, "150:3 200:2 250:1", 0},
    {"no step: a time in brackets", "| 5/9 [00:12<01:22, loss=2.5, global_step=3.000]\n",
     0, 0, "3:2.5", 0},
    {"updates", "epoch 001:    100 / 4000 loss=2.5, nll_loss=1.5, num_updates=101\n", 0,
     0, "101:2.5", 0},
    {"a line more for each step",
     "Iteration 20 (5 iter/s), loss = 2.5\n    Train net output #0: loss = 2.5\n"
     "Iteration 40 (5 iter/s), loss = 2\n    Train net output #0: loss = 2\n",
     0, 0, "20:2.5 40:2", 0},
    {"decimal commas", "step;loss\n1;2,5\n2;2,125\n", 0, 0, "1:2.5 2:2.125", 0},
    {"decimal commas in a log", "step 1 loss 2,345 lr 0,1\nstep 1,000 loss 1,5\n", 0, 0,
     "1:2.345 1000:1.5", 0},
    {"commas between thousands", "step 1 loss 1,234.5\nstep 2 loss 1,234,567\n", 0, 0,
     "1:1234.5 2:1.23457e+06", 0},
    {"a list of losses", "loss: 2,3,4\nloss: 2, 3\n", 0, 0, "0:2 1:2", 0},
    {"commas and points", "step 1 loss 1,234\nstep 2 loss 999.5\n", 0, 0, 0,
     "some numbers have a comma, '1,234', and some a point, '999.5'"},
    {"decimal commas between commas", "step,loss\n0,2,5\n1,2,25\n", 0, 0, 0,
     "more than the 2 cells that the first line names"},
    {"a row that is too long", "step,loss\n1,2.5\n2,2.25,hello\n3,2,\n", 0, 0,
     "1:2.5 3:2", 0},
    {"Excel's mark", "\xef\xbb\xbfstep,loss\n3,2.5\n", 0, 0, "3:2.5", 0},
    {"zstd", "\x28\xb5\x2f\xfd...", 0, 0, 0, "x is packed by zstd: unpack it first"},
    {"a run of W&B", ":W&B....", 0, 0, 0, "export its history as CSV"},
    {"a document", "%PDF-1.7", 0, 0, 0, "x is a PDF document, no curve; give"},
    {"nothing", "", 0, 0, 0, "is empty"},
    {"spaces", " \n\n", 0, 0, 0, "is empty"},
    {"no number", "hello\nworld\n", 0, 0, 0, "no loss with a number in this log"},
    {"no such column", "step,acc\n1,2\n", 0, 0, 0, "there are 'acc'"},
    {"no such key", "{\"acc\": 1}\n{\"acc\": 2}\n", "loss", 0, 0,
     "nothing called 'loss' with a number in this JSON; there are 'acc'"},
    {"no match", "loss 2\n", 0, "nll (\\d+)", 0, "no line fits --regex"},
    {"a bad regex", "loss 2\n", 0, "loss (\\d+", 0, "--regex 'loss (\\d+'"},
    {"no group", "loss 2\n", 0, "loss \\d+", 0, "no group for the number"},
    {"looking ahead", "loss 2\n", 0, "loss (?=x)(\\d)", 0, "only (?P<name>...)"},
    {"another name", "loss 2\n", 0, "loss (?P<x>\\d)", 0, "called loss and step"},
    {"lazy", "loss 2\n", 0, ".*?loss (\\d)", 0, "not known here"},
    {"broken JSON", "{\"loss\": [1, 2", 0, 0, 0, "JSON"},
};

static void put_points(const usc_curve *c, char *out, size_t size)
{
    size_t n = 0;
    out[0] = '\0';
    for (int64_t i = 0; i < c->n && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%lld:%g", i > 0 ? " " : "",
                              (long long)c->steps[i], c->values[i]);
}

static void test_samples(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof samples / sizeof samples[0]; i++) {
        const sample *s = &samples[i];
        const usc_curve_options o = {s->key, s->regex};
        char points[256];
        usc_error err = {0};
        usc_curve *c;
        const usc_status st =
            usc_curve_parse("x", s->text, strlen(s->text), &o, &c, &err);
        if (st == USC_OK) put_points(c, points, sizeof points);
        if (s->points != NULL) {
            if (st != USC_OK) fail_msg("%s: %s", s->name, err.text);
            if (strcmp(points, s->points) != 0) fail_msg("%s: %s", s->name, points);
        } else {
            if (st == USC_OK) fail_msg("%s: %s", s->name, points);
            if (strstr(err.text, s->error) == NULL) fail_msg("%s: %s", s->name, err.text);
        }
        usc_curve_free(c);
    }
}

static void test_what_is_odd_is_noted(void **state)
{
    static const char *const odd[][2] = {
        {"1,5\n2,4\n2,4.5\n", "1 values of 'column 2' stand twice"},
        {"1,5\n2,nan\n3,inf\n", "NaN or Inf at step 2, for the first time"},
        {"step,loss\n1,2\n2,x\n", "1 rows hold no number as 'loss'"},
        {"{\"loss\": 2}\n{\"loss\"\n", "1 lines are not JSON"},
        {"step 1 loss 3\nstep 1 loss 2\n", "'step' begins anew 1 times"},
        {"step 1 loss 3\nloss 9\nstep 2 loss 2\n",
         "1 values of 'loss' stand without a step"},
        {"step;loss\n1;2,5\n", "a decimal comma: '2,5' is read as 2.5"},
        {"step,loss\n1,2\n2,2,5\n", "1 rows hold more cells than the first line names"},
        {"Epoch [1][1/1] loss: 2.5\nEpoch [2][1/1] loss: 2.25\n",
         "counted on with 1 for each"},
        {"1,2\n2,3\n", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        usc_curve *c;
        assert_int_equal(
            usc_curve_parse("x", odd[i][0], strlen(odd[i][0]), NULL, &c, NULL), 0);
        if (strstr(c->notes, odd[i][1]) == NULL) fail_msg("%zu: %s", i, c->notes);
        if (odd[i][1][0] == '\0') assert_string_equal(c->notes, "");
        usc_curve_free(c);
    }
}

static void test_the_last_digit_printed_is_known(void **state)
{
    static const struct {
        const char *text;
        double grain;
    } cases[] = {{"2.5\n2.25\n", 0.01},
                 {"2\n3\n", 1},
                 {"2.123456789\n", 1e-9},
                 {"1.900\n2.000\n", 1e-3},
                 {"1.25E-01\n", 1e-3}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        usc_curve *c;
        assert_int_equal(
            usc_curve_parse("x", cases[i].text, strlen(cases[i].text), NULL, &c, NULL),
            0);
        assert_true(fabs(c->grain - cases[i].grain) < 1e-12);
        usc_curve_free(c);
    }
}

/* An event of step 3 with tag "loss" and value 2.5, behind its version record; lengths
 * and masked CRCs as an implementation in Python wrote them. */
static const unsigned char events[] = {
    0x18, 0x0,  0x0,  0x0,  0x0,  0x0,  0x0,  0x0,  0xa3, 0x7f, 0x4b, 0x22, 0x9,  0x0,
    0x0,  0x0,  0x0,  0x0,  0x0,  0xf0, 0x3f, 0x1a, 0xd,  0x62, 0x72, 0x61, 0x69, 0x6e,
    0x2e, 0x45, 0x76, 0x65, 0x6e, 0x74, 0x3a, 0x32, 0x86, 0xbf, 0x57, 0x7a, 0x1a, 0x0,
    0x0,  0x0,  0x0,  0x0,  0x0,  0x0,  0x12, 0x9b, 0xd8, 0x2d, 0x9,  0x0,  0x0,  0x0,
    0x0,  0x0,  0x0,  0x0,  0x40, 0x10, 0x3,  0x2a, 0xd,  0xa,  0xb,  0xa,  0x4,  0x6c,
    0x6f, 0x73, 0x73, 0x15, 0x0,  0x0,  0x20, 0x40, 0xbb, 0x63, 0x41, 0x8a};

static void test_an_event_file(void **state)
{
    usc_curve *c;
    usc_error err;
    char points[64];
    unsigned char damaged[sizeof events];
    (void)state;
    assert_int_equal(usc_curve_parse("x", events, sizeof events, NULL, &c, &err), USC_OK);
    put_points(c, points, sizeof points);
    assert_string_equal(points, "3:2.5");
    assert_string_equal(c->form, "event file");
    usc_curve_free(c);
    for (size_t n = 12; n < sizeof events; n++) { /* cut off anywhere: a sentence */
        assert_int_equal(usc_curve_parse("x", events, n, NULL, &c, &err), USC_E_RANGE);
        assert_non_null(strstr(err.text, "no loss with a number in this event file"));
    }
    memcpy(damaged, events, sizeof events);
    damaged[sizeof events - 6] ^= 1;
    assert_int_equal(usc_curve_parse("x", damaged, sizeof events, NULL, &c, &err),
                     USC_E_RANGE);
    damaged[0] ^= 1;
    assert_int_equal(usc_curve_parse("x", damaged, sizeof events, NULL, &c, &err),
                     USC_E_CORRUPT);
    assert_non_null(strstr(err.text, "binary and no event file"));
}

/* What is no text as it lies there: gzip of two members, UTF-16 of either order. */
static void test_packed_and_wide(void **state)
{
    static const unsigned char gzip[] = {
        0x1f, 0x8b, 0x8,  0x0,  0x0,  0x0,  0x0,  0x0,  0x2,  0x3,  0x2b, 0x2e, 0x49,
        0x2d, 0xd0, 0xc9, 0xc9, 0x2f, 0x2e, 0xe6, 0x32, 0xd4, 0x31, 0xd2, 0x33, 0xe5,
        0x2,  0x0,  0x82, 0xf3, 0x25, 0xed, 0x10, 0x0,  0x0,  0x0,  0x1f, 0x8b, 0x8,
        0x0,  0x0,  0x0,  0x0,  0x0,  0x2,  0x3,  0x33, 0xd2, 0x31, 0xd2, 0x33, 0x32,
        0xe5, 0x2,  0x0,  0xf5, 0x87, 0xf9, 0x2c, 0x7,  0x0,  0x0,  0x0};
    static const char text[] = "step 1 loss 2.5\n";
    enum { FIRST = 36 };
    unsigned char wide[2][2 * sizeof text];
    char points[64];
    usc_curve *c;
    usc_error err = {0};
    (void)state;
    assert_int_equal(usc_curve_parse("x", gzip, sizeof gzip, NULL, &c, &err), USC_OK);
    put_points(c, points, sizeof points);
    assert_string_equal(points, "1:2.5 2:2.25");
    usc_curve_free(c);
    for (size_t n = 3; n < sizeof gzip;
         n++) { /* cut off or damaged anywhere: a sentence */
        unsigned char bad[sizeof gzip];
        memcpy(bad, gzip, sizeof bad);
        bad[n] ^= 0x10;
        if (usc_curve_parse("x", bad, sizeof bad, NULL, &c, &err) == USC_OK) {
            put_points(c, points, sizeof points); /* a time, a bit that is none */
            if (strncmp(points, "1:2.5", 5) != 0) fail_msg("byte %zu: %s", n, points);
            usc_curve_free(c);
        }
        const usc_status st = usc_curve_parse("x", gzip, n, NULL, &c, &err);
        if (n >= FIRST && n < FIRST + 2)
            assert_int_equal(st, USC_OK); /* what follows a member is no other one */
        else
            assert_non_null(strstr(err.text, "see what gunzip says"));
        usc_curve_free(c);
    }
    for (int big = 0; big < 2; big++) {
        for (size_t i = 0; i < sizeof text; i++) { /* the zero at its end makes room */
            const unsigned value = i == 0 ? 0xfeff : (unsigned)text[i - 1];
            wide[big][2 * i + !big] = (unsigned char)(value >> 8);
            wide[big][2 * i + (size_t)big] = (unsigned char)value;
        }
        assert_int_equal(
            usc_curve_parse("x", wide[big], sizeof wide[big], NULL, &c, &err), USC_OK);
        put_points(c, points, sizeof points);
        assert_string_equal(points, "1:2.5");
        usc_curve_free(c);
    }
}

/* What the first line of a comparison says of a file. */
static void test_what_was_taken_is_told(void **state)
{
    static const char *const told[][3] = {
        /* the file, its axis, what was not taken */
        {"epoch,step,loss_epoch,loss\n0,1,,2.5\n0,2,,2.25\n0,2,2.5,\n", "step",
         "'loss_epoch' (1"},
        {"global_step=1 loss=2.3 reduced_train_loss=2.312\n", "global_step",
         "'loss' (1 of 2 digits)"},
        {" 1/9 [00:01<00:09, loss=2.5]\n", "progress bar", ""},
        {"{\"loss\": 2, \"iter\": 4}\n{\"loss\": 2, \"iter\": 5}\n", "iter", ""},
        {"loss 2.5\nloss 2\n", "", ""},
    };
    (void)state;
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        usc_curve *c;
        assert_int_equal(
            usc_curve_parse("x", told[i][0], strlen(told[i][0]), NULL, &c, NULL), 0);
        assert_string_equal(c->axis, told[i][1]);
        if (strstr(c->others, told[i][2]) == NULL) fail_msg("%zu: %s", i, c->others);
        if (told[i][2][0] == '\0') assert_string_equal(c->others, "");
        usc_curve_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_what_is_odd_is_noted),
        cmocka_unit_test(test_the_last_digit_printed_is_known),
        cmocka_unit_test(test_an_event_file),
        cmocka_unit_test(test_packed_and_wide),
        cmocka_unit_test(test_what_was_taken_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
