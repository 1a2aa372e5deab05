/* store_fixture: what the store's tests share: a directory of their own, frames that can be told
 * apart, and small steps around the segment log. */
#ifndef STORE_FIXTURE_H
#define STORE_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/store/qwp_seglog.h"

/* Runs the suite (main's result) with a base directory on disk and one on tmpfs, which go
 * afterwards even when a test failed in the middle. */
int store_suite_run(Suite *suite);
/* A fresh directory in one of them. */
void store_dir_make(char *dir, size_t room, bool shm);
void store_dir_remove(const char *dir);

/* 64 KiB segments, 1 MiB in all, MEMORY, payload CRCs. */
struct qwp_seglog_options store_options(const char *dir);
struct qwp_seglog *store_open(const struct qwp_seglog_options *options);

/* Frame contents are a function of FSN and length, so that every byte can be checked. */
void store_fill(unsigned char *at, size_t len, uint64_t fsn);
bool store_filled(const unsigned char *at, size_t len, uint64_t fsn);

/* Appends one frame; the result of reserve when that is not QWP_OK. */
enum qwp_result store_append(struct qwp_seglog *log, size_t len);
/* Runs the keeper until it has nothing more to do now. */
void store_settle(struct qwp_seglog *log);
/* qwp_seglog_next(), with the keeper run while frames wait to be checked. */
enum qwp_result store_next(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor,
                           struct qwp_frame *frame);
/* Reads all frames from the cursor on, checks their contents, returns their number. */
uint64_t store_read_all(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor);

/* Counts and measures the *.sfa files, and returns how many other names there are. */
struct store_files {
    unsigned segments, unready, corrupt, others;
    uint64_t segment_bytes, unready_bytes;
};
struct store_files store_files_count(const char *dir);
/* Name of the segment with that base; room for QWP_STORE_NAME_BYTES. */
void store_segment_name(const char *dir, uint64_t base, char *name);
/* Changes bits of one byte of a file. */
void store_flip(const char *dir, const char *name, uint64_t off, unsigned char bits);

#endif
