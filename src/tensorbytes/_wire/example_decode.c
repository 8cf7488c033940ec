#include "example.h"

#include <string.h>

#include "example_parts.h"
#include "wire.h"

/* Where a column stands when it holds `row` records. Returns 0 if it has no room for so many. */
static int settle(struct example_target *t, size_t row)
{
    size_t lists = row, items;
    if ((t->optional && row > t->present_room) || (t->lists && row > t->step_room))
        return 0;
    if (t->lists)
        lists = (size_t)t->steps[row];
    if (t->splits) {
        if (lists > t->split_room)
            return 0;
        items = (size_t)t->splits[lists];
    } else {
        if (t->width && lists > SIZE_MAX / 8 / (size_t)t->width)
            return 0;
        items = lists * (size_t)t->width;
    }
    t->lists_used = lists;
    if (t->kind == KIND_BYTES) {
        if (items > t->string_room)
            return 0;
        t->strings_used = items;
        items = (size_t)t->strings[items];
    }
    t->values_used = items;
    return items <= t->value_room;
}

static void begin(struct example_target *t)
{
    if (t->strings)
        t->strings[0] = 0;
    if (t->splits)
        t->splits[0] = 0;
    if (t->steps)
        t->steps[0] = 0;
}

static ALWAYS_INLINE int end_list(struct example_target *t)
{
    if (t->splits) {
        if (t->lists_used == t->split_room)
            return OUTCOME_ROOM;
        t->splits[t->lists_used + 1] = (int64_t)(t->kind == KIND_BYTES ? t->strings_used : t->values_used);
    }
    t->lists_used++;
    return OUTCOME_DONE;
}

static int add_strings(const struct example_job *job, struct example_target *t, size_t at, size_t end)
{
    size_t before = t->strings_used, to;
    while (at < end) {
        if (!enter(job->buf, &at, end, 0x0a, &to))
            return OUTCOME_ODD;
        if (t->width >= 0 && t->strings_used - before == (size_t)t->width)
            return OUTCOME_ODD;
        if (t->strings_used == t->string_room || to - at > t->value_room - t->values_used)
            return OUTCOME_ROOM;
        if (to > at)
            memcpy(t->values + t->values_used, job->buf + at, to - at);
        t->values_used += to - at;
        t->strings[++t->strings_used] = (int64_t)t->values_used;
        at = to;
    }
    return t->width < 0 || t->strings_used - before == (size_t)t->width ? OUTCOME_DONE : OUTCOME_ODD;
}

static int add_floats(const struct example_job *job, struct example_target *t, size_t at, size_t end)
{
    size_t before = t->values_used, from, to;
    while (at < end) {
        if (!numeric_run(job->buf, &at, end, KIND_FLOAT, &from, &to))
            return OUTCOME_ODD;
        size_t count = (to - from) / 4;
        if (t->width >= 0 && count > (size_t)t->width - (t->values_used - before))
            return OUTCOME_ODD;
        if (count > t->value_room - t->values_used)
            return OUTCOME_ROOM;
        if (count == 1)
            memcpy(t->values + 4 * t->values_used, job->buf + from, 4);
        else
            memcpy(t->values + 4 * t->values_used, job->buf + from, to - from);
        t->values_used += count;
    }
    return t->width < 0 || t->values_used - before == (size_t)t->width ? OUTCOME_DONE : OUTCOME_ODD;
}

static int add_integers(const struct example_job *job, struct example_target *t, size_t at, size_t end)
{
    size_t before = t->values_used, from, to;
    int64_t *out = (int64_t *)t->values;
    if (t->width == 1 && before < t->value_room && packed_value(job->buf, job->size, at, end, out + before)) {
        t->values_used++;
        return OUTCOME_DONE;
    }
    while (at < end) {
        if (!numeric_run(job->buf, &at, end, KIND_INT64, &from, &to))
            return OUTCOME_ODD;
        size_t room = t->value_room - t->values_used, most = room;
        if (t->width >= 0 && most > (size_t)t->width - (t->values_used - before))
            most = (size_t)t->width - (t->values_used - before);
        size_t count = varints_decode(job->buf + from, job->buf + to, job->buf + job->size, out + t->values_used, most);
        if (count == SIZE_MAX) /* too many, or too long */
            return most == room && varints_count(job->buf + from, to - from) > room ? OUTCOME_ROOM : OUTCOME_ODD;
        t->values_used += count;
    }
    return t->width < 0 || t->values_used - before == (size_t)t->width ? OUTCOME_DONE : OUTCOME_ODD;
}

/* The list in a Feature. */
static int add_list(const struct example_job *job, struct example_target *t, size_t at, size_t end)
{
    size_t stop;
    int outcome;
    if (at == end) { /* it has no kind, and is empty */
        if (t->width > 0)
            return OUTCOME_ODD;
        return end_list(t);
    }
    if (!enter(job->buf, &at, end, (uint8_t)(t->kind << 3 | 2), &stop) || stop != end)
        return OUTCOME_ODD;
    if (t->kind == KIND_INT64)
        outcome = add_integers(job, t, at, end);
    else
        outcome = t->kind == KIND_FLOAT ? add_floats(job, t, at, end) : add_strings(job, t, at, end);
    return outcome ? outcome : end_list(t);
}

static int add_steps(const struct example_job *job, struct example_target *t, size_t row, size_t at, size_t end)
{
    size_t stop;
    if (row >= t->step_room)
        return OUTCOME_ROOM;
    for (; at < end; at = stop) {
        if (!enter(job->buf, &at, end, 0x0a, &stop))
            return OUTCOME_ODD;
        int outcome = add_list(job, t, at, stop);
        if (outcome)
            return outcome;
    }
    t->steps[row + 1] = (int64_t)t->lists_used;
    return OUTCOME_DONE;
}

/* A record that lacks an optional feature. */
static int add_nothing(struct example_target *t, size_t row)
{
    if (!t->optional)
        return OUTCOME_ODD;
    if (row >= t->present_room)
        return OUTCOME_ROOM;
    t->present[row] = 0;
    if (!t->lists)
        return end_list(t);
    if (row >= t->step_room)
        return OUTCOME_ROOM;
    t->steps[row + 1] = (int64_t)t->lists_used;
    return OUTCOME_DONE;
}

/* The entries of one Features or FeatureLists message; *seen is how many of the columns they are for. */
static int add_entries(const struct example_job *job, int lists, size_t row, size_t at, size_t end, size_t *seen, size_t *column)
{
    struct key_search *keys = job->keys[lists];
    struct example_target *targets = job->targets + (lists ? job->keys[0]->keys->count : 0);
    const uint8_t *buf = job->buf;
    keys->next = 0;
    for (size_t position = 0; at < end; position++) {
        size_t entry_end, key_end, value_end;
        if (!enter(buf, &at, end, 0x0a, &entry_end))
            return OUTCOME_ODD;
        size_t key = at;
        if (!enter(buf, &key, entry_end, 0x0a, &key_end))
            return OUTCOME_ODD;
        size_t value = key_end;
        if (!enter(buf, &value, entry_end, 0x12, &value_end) || value_end != entry_end)
            return OUTCOME_ODD;
        at = entry_end;
        ptrdiff_t slot = keys_predict(keys, position, buf + key, key_end - key);
        if (slot < 0) {
            if (job->closed)
                return OUTCOME_ODD;
            continue;
        }
        struct example_target *t = targets + slot;
        if (t->seen == row + 1) /* of a key that comes twice, the last counts */
            return OUTCOME_ODD;
        if (!lists && value == value_end) /* a Feature without a kind is a missing one */
            continue;
        t->seen = row + 1;
        ++*seen;
        *column = (size_t)(t - job->targets);
        int outcome = lists ? add_steps(job, t, row, value, value_end) : add_list(job, t, value, value_end);
        if (outcome)
            return outcome;
        if (t->optional) {
            if (row >= t->present_room)
                return OUTCOME_ROOM;
            t->present[row] = 1;
        }
    }
    return OUTCOME_DONE;
}

/* The usual form of a record: nothing; or `features`, which a SequenceExample calls its context,
 * then its feature_lists; each at most once. */
static int add_record(const struct example_job *job, size_t row, size_t at, size_t end, size_t *column)
{
    size_t stop, seen = 0, count = job->keys[0]->keys->count + job->keys[1]->keys->count;
    int outcome;
    for (int lists = 0; lists < 2; lists++) {
        uint8_t tag = lists ? 0x12 : 0x0a;
        if (at == end || job->buf[at] != tag)
            continue;
        if (!enter(job->buf, &at, end, tag, &stop))
            return OUTCOME_ODD;
        if ((!lists || job->keys[1]->keys->count || job->closed)
            && (outcome = add_entries(job, lists, row, at, stop, &seen, column)))
            return outcome;
        at = stop;
    }
    if (at != end)
        return OUTCOME_ODD;
    for (size_t c = 0; seen < count && c < count; c++)
        if (job->targets[c].seen != row + 1) {
            *column = c;
            seen++;
            if ((outcome = add_nothing(job->targets + c, row)))
                return outcome;
        }
    return OUTCOME_DONE;
}

size_t example_decode(struct example_job *job, size_t row, int *outcome, size_t *column)
{
    size_t columns = job->keys[0]->keys->count + job->keys[1]->keys->count, r = 0;
    for (size_t c = 0; c < columns; c++) {
        if (!row)
            begin(job->targets + c);
        if (!settle(job->targets + c, row))
            return SIZE_MAX;
        job->targets[c].seen = 0;
    }
    *outcome = OUTCOME_DONE;
    while (r < job->count && !*outcome) {
        size_t end = job->count - r < 3 ? job->count : r + 3, sound = end;
        if (job->verify)
            sound = r + wire_count_sound(job->buf, job->records, r, end, job->verify);
        for (; r < sound && !*outcome; r += !*outcome) {
            size_t start = (size_t)job->records[2 * r];
            *outcome = add_record(job, row + r, start, start + (size_t)job->records[2 * r + 1], column);
        }
        if (!*outcome && sound < end)
            *outcome = OUTCOME_DAMAGED;
    }
    if (*outcome)
        for (size_t c = 0; c < columns; c++)
            settle(job->targets + c, row + r);
    return r;
}
