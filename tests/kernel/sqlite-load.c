/* SPDX-License-Identifier: MIT */
/*
 * SQLite across a power cut: transactions that move money between accounts and
 * say so in a table of their own.
 *
 *	sqlite-load make FILE wal|delete
 *	sqlite-load run FILE wal|delete STATE SEED
 *	                     until the device fails, which it has to; then STATE
 *	                     tells how many commits were promised
 *	sqlite-load check FILE STATE
 *	                     exit status 1: the file is damaged, or a commit
 *lost
 *
 * synchronous=EXTRA: with a journal that is removed a commit lasts only once
 * the directory is synced, too.
 */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NR_ACCOUNTS 200
#define BALANCE     1000

static sqlite3 *db;

__attribute__((noreturn, format(printf, 1, 2))) static void
die(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("sqlite-load: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	exit(2);
}

/* SQLITE_OK, or what SQLite says. */
static int
run_sql(const char *fmt, ...)
{
	char sql[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(sql, sizeof(sql), fmt, ap);
	va_end(ap);
	return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

/* The first column of the first row, a text to be freed; NULL: it failed. */
static char *
ask(const char *sql)
{
	sqlite3_stmt *stmt;
	char *text = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
		return NULL;
	if (sqlite3_step(stmt) == SQLITE_ROW &&
	    sqlite3_column_text(stmt, 0) != NULL)
		text = strdup((const char *)sqlite3_column_text(stmt, 0));
	sqlite3_finalize(stmt);
	return text;
}

static void
open_file(const char *file, const char *mode)
{
	if (sqlite3_open(file, &db) != SQLITE_OK)
		die("%s: %s", file, sqlite3_errmsg(db));
	/* so that the log is written back now and then, too */
	if (mode != NULL &&
	    run_sql("PRAGMA journal_mode=%s; PRAGMA synchronous=EXTRA;"
		    "PRAGMA wal_autocheckpoint=20",
		mode) != SQLITE_OK)
		die("%s: %s", mode, sqlite3_errmsg(db));
}

static void
make(const char *file, const char *mode)
{
	open_file(file, mode);
	if (run_sql("CREATE TABLE account (id INTEGER PRIMARY KEY, balance);"
		    "CREATE TABLE moved (nr INTEGER PRIMARY KEY, note);"
		    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1"
		    " FROM n WHERE i < %d)"
		    "INSERT INTO account SELECT i, %d FROM n;",
		NR_ACCOUNTS, BALANCE) != SQLITE_OK)
		die("%s: %s", file, sqlite3_errmsg(db));
	sqlite3_close(db);
}

static int
move(unsigned nr, unsigned *seed)
{
	int amount = rand_r(seed) % 50, from = 1 + rand_r(seed) % NR_ACCOUNTS;
	int to = 1 + rand_r(seed) % NR_ACCOUNTS;

	return run_sql(
	    "BEGIN;"
	    "UPDATE account SET balance = balance - %d WHERE id = %d;"
	    "UPDATE account SET balance = balance + %d WHERE id = %d;"
	    "INSERT INTO moved VALUES (%u, hex(randomblob(200)));"
	    "COMMIT;",
	    amount, from, amount, to, nr);
}

static void
run(const char *file, const char *mode, const char *state, unsigned seed)
{
	unsigned nr = 0;
	FILE *out;

	open_file(file, mode);
	while (move(nr + 1, &seed) == SQLITE_OK)
		nr++;
	printf("%u commits, then: %s\n", nr, sqlite3_errmsg(db));
	out = fopen(state, "w");
	if (out == NULL || fprintf(out, "%u\n", nr) < 0 || fclose(out) != 0)
		die("%s: cannot be written", state);
	/* it is not closed: it would write, and there is nothing to write to */
	exit(0);
}

/* Is the answer this number, or (at_least) more? */
static int
differs(const char *sql, long want, int at_least)
{
	char *text = ask(sql);
	long is = text != NULL ? strtol(text, NULL, 10) : -1;

	free(text);
	if (is == want || (at_least && is > want))
		return 0;
	printf("%s: %ld, not %ld\n", sql, is, want);
	return 1;
}

static int
check(const char *file, const char *state)
{
	FILE *in = fopen(state, "r");
	int bad = 0;
	char *text;
	long nr;

	if (in == NULL || fscanf(in, "%ld", &nr) != 1)
		die("%s: not what run has left", state);
	fclose(in);
	open_file(file, NULL);
	text = ask("PRAGMA integrity_check");
	if (text == NULL || strcmp(text, "ok") != 0) {
		printf("integrity: %s\n",
		    text != NULL ? text : sqlite3_errmsg(db));
		bad = 1;
	}
	free(text);
	bad |= differs(
	    "SELECT sum(balance) FROM account", (long)NR_ACCOUNTS * BALANCE, 0);
	bad |= differs("SELECT count(*) FROM account", NR_ACCOUNTS, 0);
	bad |= differs("SELECT count(*) FROM moved", nr, 1);
	bad |=
	    differs("SELECT coalesce(max(nr), 0) - count(*) FROM moved", 0, 0);
	sqlite3_close(db);
	return bad;
}

int
main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "make") == 0)
		make(argv[2], argv[3]);
	else if (argc == 6 && strcmp(argv[1], "run") == 0)
		run(argv[2], argv[3], argv[4],
		    (unsigned)strtoul(argv[5], NULL, 10));
	else if (argc == 4 && strcmp(argv[1], "check") == 0)
		return check(argv[2], argv[3]);
	else
		die("make FILE MODE | run FILE MODE STATE SEED | check FILE "
		    "STATE");
	return 0;
}
