#define _GNU_SOURCE /* madvise */
#include "large.h"

#include "wire.h"

#if defined(__linux__) || defined(__APPLE__)
#define WITH_CREW 1
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#include <time.h>
#endif

#define HUGE_PAGE (2 * 1024 * 1024)
#define STRIDE_BYTES (4 * 1024 * 1024)

/* One of two halves of a large job: memory to be faulted in and, if `from` is given, filled. */
struct half {
    uint8_t *to;
    const uint8_t *from;
    size_t size;
    uint32_t crc; /* of what was copied */
};

#if defined(__linux__) && defined(MADV_POPULATE_WRITE)
#define WITH_THREADS 1

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Fresh memory is faulted in page by page while it is first written, which takes longer than
 * the writing. Huge pages cost a fraction of that, but in a virtual machine that returns free
 * memory to its host they can cost several times as much. So memory is faulted in just ahead of
 * the copy, in strides: with huge pages while they come quickly, with small ones in bulk once
 * they don't. It is advice only: where the system declines, writing does the faulting. */
static void fault_in_and_copy(void *argument)
{
    struct half *half = argument;
    const uintptr_t page = 4096;
    uintptr_t at = ((uintptr_t)half->to + page - 1) & ~(page - 1);
    uintptr_t end = ((uintptr_t)half->to + half->size) & ~(page - 1);
    uintptr_t stop = (at + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1);
    size_t copied = 0;
    int huge = at < end && madvise((void *)at, end - at, MADV_HUGEPAGE) == 0, declined = 0;
    while (at < end && !declined) {
        int judge = huge && at % HUGE_PAGE == 0; /* what stands before the first border is small anyway */
        double started = seconds();
        if (stop > end)
            stop = end;
        declined = stop > at && madvise((void *)at, stop - at, MADV_POPULATE_WRITE) < 0;
        if (judge && (double)(stop - at) < 1.5e9 * (seconds() - started)) {
            huge = 0;
            madvise((void *)stop, end - stop, MADV_NOHUGEPAGE);
        }
        if (half->from) {
            size_t ready = stop - (uintptr_t)half->to;
            half->crc = wire_copy_crc32c(half->crc, half->to + copied, half->from + copied, ready - copied);
            copied = ready;
        }
        at = stop;
        stop += judge || !huge ? STRIDE_BYTES : HUGE_PAGE; /* one page first, to see what it costs */
    }
    if (half->from)
        half->crc = wire_copy_crc32c(half->crc, half->to + copied, half->from + copied, half->size - copied);
}

struct job {
    void (*work)(void *);
    void *argument;
};

static void *run(void *argument)
{
    struct job *job = argument;
    job->work(job->argument);
    return NULL;
}
#endif

void large_both(void (*work)(void *), void *one, void *two)
{
#if WITH_THREADS
    struct job other = {work, two};
    pthread_t thread;
    int together = pthread_create(&thread, NULL, run, &other) == 0;
    work(one);
    if (together) {
        pthread_join(thread, NULL);
        return;
    }
#else
    work(one);
#endif
    work(two);
}

#if WITH_CREW
struct helper {
    large_work *work;
    void *argument;
    unsigned number;
};

static void *help(void *argument)
{
    const struct helper *helper = argument;
    helper->work(helper->argument, helper->number);
    return NULL;
}
#endif

void large_all(large_work *work, void *argument, unsigned threads)
{
#if WITH_CREW
    pthread_t started[LARGE_MOST_THREADS - 1];
    struct helper helpers[LARGE_MOST_THREADS - 1];
    unsigned count = 0;
    for (; count + 1 < threads && count + 1 < LARGE_MOST_THREADS; count++) {
        helpers[count] = (struct helper){work, argument, count + 1};
        if (pthread_create(&started[count], NULL, help, &helpers[count]) != 0)
            break;
    }
    work(argument, 0);
    while (count > 0)
        pthread_join(started[--count], NULL);
#else
    (void)threads;
    work(argument, 0);
#endif
}

void large_fault_in(uint8_t *memory, size_t n)
{
#if WITH_THREADS
    struct half whole = {memory, NULL, n, 0};
    fault_in_and_copy(&whole);
#else
    (void)memory;
    (void)n;
#endif
}

void large_prefault(uint8_t *memory, size_t n)
{
#if WITH_THREADS
    size_t middle = n / 2;
    struct half halves[2] = {{memory, NULL, middle, 0}, {memory + middle, NULL, n - middle, 0}};
    if (n >= LARGE_BYTES)
        large_both(fault_in_and_copy, &halves[0], &halves[1]);
#else
    (void)memory;
    (void)n;
#endif
}

uint32_t large_copy_crc32c(uint32_t crc, uint8_t *to, const uint8_t *from, size_t n)
{
#if WITH_THREADS
    if (n >= LARGE_BYTES) {
        size_t middle = n / 2;
        struct half halves[2] = {{to, from, middle, 0}, {to + middle, from + middle, n - middle, 0}};
        large_both(fault_in_and_copy, &halves[0], &halves[1]);
        crc = wire_crc32c_join(crc, halves[0].crc, halves[0].size);
        return wire_crc32c_join(crc, halves[1].crc, halves[1].size);
    }
#endif
    return wire_copy_crc32c(crc, to, from, n);
}
