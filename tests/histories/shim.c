/* Lets a process see another time of day, and wait before each flush to disk.
 *
 * Preloaded. ROWTIDE_SHIM names a file of two 64-bit integers, read at each call: nanoseconds added
 * to the real-time clock, and microseconds that a flush takes longer. Monotonic clocks are as ever.
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

static volatile int64_t *settings;

__attribute__((constructor)) static void open_settings(void)
{
    const char *path = getenv("ROWTIDE_SHIM");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (found != MAP_FAILED)
        settings = found;
}

static void add(struct timespec *moment)
{
    int64_t since = moment->tv_sec * 1000000000LL + moment->tv_nsec + (settings ? settings[0] : 0);
    moment->tv_sec = since / 1000000000LL;
    moment->tv_nsec = since % 1000000000LL;
}

int clock_gettime(clockid_t clock, struct timespec *moment)
{
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int failed = real(clock, moment);
    if (!failed && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        add(moment);
    return failed;
}

int gettimeofday(struct timeval *restrict moment, void *restrict zone)
{
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    moment->tv_sec = now.tv_sec;
    moment->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *moment)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (moment)
        *moment = now.tv_sec;
    return now.tv_sec;
}

static void wait_for_disk(void)
{
    if (settings && settings[1] > 0)
        usleep((useconds_t)settings[1]);
}

int fsync(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_for_disk();
    return real(file);
}

int fdatasync(int file)
{
    static int (*real)(int);
    if (!real)
        real = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_for_disk();
    return real(file);
}
