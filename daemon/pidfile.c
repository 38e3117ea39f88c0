/* SPDX-License-Identifier: MIT */
/*
 * The file that says who we are.  Whoever looks at it sees a whole number, and
 * it goes with us, unless somebody else has put his there.
 */
#include "daemon.h"

#include <sys/stat.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Under another name first: it appears with its content. */
static int
put(const char *path, char *temporary)
{
	int fd = mkstemp(temporary), err = 0;

	if (fd < 0)
		return -errno;
	if (dprintf(fd, "%ld\n", (long)getpid()) < 0 || fchmod(fd, 0644) != 0)
		err = -errno;
	if (close(fd) != 0 && err == 0)
		err = -errno;
	if (err == 0 && rename(temporary, path) != 0)
		err = -errno;
	if (err != 0)
		unlink(temporary);
	return err;
}

int
pidfile_write(const char *path, char *err, size_t errlen)
{
	char *temporary;
	int ret = -ENOMEM;

	if (asprintf(&temporary, "%s.XXXXXX", path) >= 0) {
		ret = put(path, temporary);
		free(temporary);
	}
	if (ret == 0)
		return 0;
	return refuse(
	    err, errlen, ret, "pidfile: \"%.200s\": %s", path, strerror(-ret));
}

/* By its content: a new file may have the inode of one that was removed. */
void
pidfile_remove(const char *path)
{
	FILE *f = fopen(path, "re");
	long pid = 0;

	if (f == NULL)
		return;
	if (fscanf(f, "%ld", &pid) == 1 && pid == (long)getpid())
		unlink(path);
	fclose(f);
}
