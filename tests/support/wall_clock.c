/* Preloaded: adds to the wall clock of a process the seconds (a double) that stand in the file `wall-clock` of the
   folder in which it runs, from the moment that the file is there. Every other clock, and every sleep, is the kernel's. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define LOOK_AGAIN_S 1

static const volatile double *ahead_s;
static volatile time_t look_at;

static void kernel_clock(clockid_t clock, struct timespec *now) {
    syscall(SYS_clock_gettime, clock, now);
}

static void look(void) {
    struct timespec now;
    struct stat found;
    int file;

    kernel_clock(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < look_at) return;
    look_at = now.tv_sec + LOOK_AGAIN_S;
    file = open("wall-clock", O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    if (fstat(file, &found) == 0 && found.st_size >= (off_t)sizeof(double)) {
        void *shared = mmap(NULL, sizeof(double), PROT_READ, MAP_SHARED, file, 0);
        if (shared != MAP_FAILED) ahead_s = shared;
    }
    close(file);
}

static void shift(struct timespec *now) {
    double whole, rest;

    if (ahead_s == NULL) look();
    if (ahead_s == NULL) return;
    rest = modf(*ahead_s, &whole);
    now->tv_sec += (time_t)whole;
    now->tv_nsec += (long)(rest * 1e9);
    if (now->tv_nsec < 0) now->tv_nsec += 1000000000, now->tv_sec -= 1;
    if (now->tv_nsec >= 1000000000) now->tv_nsec -= 1000000000, now->tv_sec += 1;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) shift(now);
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec read;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &read);
    now->tv_sec = read.tv_sec;
    now->tv_usec = read.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now) {
    struct timespec read;

    clock_gettime(CLOCK_REALTIME, &read);
    if (now != NULL) *now = read.tv_sec;
    return read.tv_sec;
}
