/* libFuzzer's first call: the kernel fills its tables once. */
#include "target.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    wire_init();
    return 0;
}
