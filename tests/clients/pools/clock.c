/* For LD_PRELOAD: the time of day is off by as many seconds as the file $CLOCK_OFFSET says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = (int)syscall(SYS_clock_gettime, clock, time);
    const char *name = getenv("CLOCK_OFFSET");
    FILE *file;
    long seconds;
    if (failed || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE) || !name || !(file = fopen(name, "r")))
        return failed;
    if (fscanf(file, "%ld", &seconds) == 1)
        time->tv_sec += seconds;
    fclose(file);
    return 0;
}
