/* Preloaded into a node: its wall clock is off by as many seconds as the first eight bytes of the
 * file WALL_CLOCK_FILE say at that moment. Monotonic clocks, timers and sleeps are left alone.
 * (libfaketime 0.9.10 breaks absolute sleeps on the monotonic clock, which Python's sleep uses.)
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static int (*system_clock)(clockid_t, struct timespec *);
static const volatile int64_t no_offset = 0;
static const volatile int64_t *offset_s = &no_offset;

__attribute__((constructor)) static void open_clock(void)
{
    system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("WALL_CLOCK_FILE");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *mapped = mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    if (mapped != MAP_FAILED)
        offset_s = mapped;
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (system_clock == NULL) /* asked by another library's constructor, before ours */
        system_clock = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = system_clock(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset_s;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    (void)zone;
    struct timespec exact;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return result;
}

time_t time(time_t *now)
{
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (now)
        *now = exact.tv_sec;
    return exact.tv_sec;
}
