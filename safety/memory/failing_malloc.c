/* Loaded ahead of the C library: lets the allocation of a given number fail, once, and counts those that are live. */
#include <errno.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void __libc_free(void *);

static long left = -1; /* allocations until one fails; negative: none will */
static long live;

void failing_after(long count) { __atomic_store_n(&left, count, __ATOMIC_SEQ_CST); }
long failing_left(void) { return __atomic_load_n(&left, __ATOMIC_SEQ_CST); }
long failing_live(void) { return __atomic_load_n(&live, __ATOMIC_SEQ_CST); }

static int fails(void)
{
    if (__atomic_load_n(&left, __ATOMIC_SEQ_CST) < 0 || __atomic_fetch_sub(&left, 1, __ATOMIC_SEQ_CST) != 0)
        return 0;
    errno = ENOMEM;
    return 1;
}

static void *counted(void *memory)
{
    if (memory)
        __atomic_fetch_add(&live, 1, __ATOMIC_SEQ_CST);
    return memory;
}

void *malloc(size_t size) { return fails() ? NULL : counted(__libc_malloc(size)); }
void *calloc(size_t count, size_t size) { return fails() ? NULL : counted(__libc_calloc(count, size)); }

void *realloc(void *memory, size_t size)
{
    if (!memory)
        return malloc(size);
    return fails() ? NULL : __libc_realloc(memory, size);
}

void free(void *memory)
{
    if (memory)
        __atomic_fetch_sub(&live, 1, __ATOMIC_SEQ_CST);
    __libc_free(memory);
}
