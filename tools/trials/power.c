/* LD_PRELOAD: what a power cut would leave. After each fsync or fdatasync of a file its content is copied to
   $POWER_SHADOW/i<inode>-<birth>, of a folder its names with inodes to d<inode>-<birth>. Before the $POWER_CUT-th one
   the process dies. power.py makes of that what lies on the disk afterwards. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
static long syncs;

static void name_of(int at, const char *name, char *out, size_t size) {
    struct statx found;
    if (statx(at, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME, &found)) abort();
    snprintf(out, size, "%llu-%lld.%09u", (unsigned long long)found.stx_ino, (long long)found.stx_btime.tv_sec,
             found.stx_btime.tv_nsec);
}

static void copy_file(int fd, int out) {
    char path[64], part[65536];
    ssize_t count;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int in = open(path, O_RDONLY);
    if (in < 0) abort();
    while ((count = read(in, part, sizeof part)) > 0)
        if (write(out, part, count) != count) abort();
    close(in);
}

static void list_folder(int fd, int out) {
    int own = openat(fd, ".", O_RDONLY | O_DIRECTORY);
    DIR *folder = fdopendir(own);
    struct dirent *entry;
    if (!folder) abort();
    while ((entry = readdir(folder))) {
        char name[64];
        if (entry->d_name[0] == '.' && (!entry->d_name[1] || (entry->d_name[1] == '.' && !entry->d_name[2]))) continue;
        name_of(own, entry->d_name, name, sizeof name);
        dprintf(out, "%s %s\n", name, entry->d_name);
    }
    closedir(folder);
}

static int synced(const char *call, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, call);
    const char *shadow = getenv("POWER_SHADOW"), *cut = getenv("POWER_CUT");
    char name[64], path[4096], part[4096];
    struct stat found;
    if (!shadow) return real(fd);
    pthread_mutex_lock(&one);
    if (cut && ++syncs == atol(cut)) kill(getpid(), SIGKILL);
    if (fstat(fd, &found) || (!S_ISREG(found.st_mode) && !S_ISDIR(found.st_mode))) {
        pthread_mutex_unlock(&one);
        return real(fd);
    }
    name_of(fd, "", name, sizeof name);
    snprintf(path, sizeof path, "%s/%c%s", shadow, S_ISDIR(found.st_mode) ? 'd' : 'i', name);
    snprintf(part, sizeof part, "%s/part-%d", shadow, getpid());
    int out = open(part, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (out < 0) abort();
    S_ISDIR(found.st_mode) ? list_folder(fd, out) : copy_file(fd, out);
    close(out);
    if (rename(part, path)) abort();
    pthread_mutex_unlock(&one);
    return 0;
}

int fsync(int fd) { return synced("fsync", fd); }
int fdatasync(int fd) { return synced("fdatasync", fd); }
