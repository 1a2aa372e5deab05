/* client_fixture: a producer in a rings directory of its own, and a reader that takes its ring
 * apart as the sidecar would, by the layout headers alone.
 *
 * Setup and teardown run around each case, so that a failed one leaves nothing behind. */
#ifndef CLIENT_FIXTURE_H
#define CLIENT_FIXTURE_H

#include <check.h>
#include <stdbool.h>
#include <stdint.h>

#include "clients/c/qwp.h"
#include "core/qwp_shape.h"
#include "ipc/qwp_ring.h"

/* The file's fork mode is off where a debugger or sanitizer wants it: state is global, as Check's.
 */
extern char fixture_dir[64];
extern struct qwp_producer *fixture_producer; /* closed by teardown */
extern struct qwp_error fixture_err;

void fixture_setup(void);
void fixture_teardown(void);
/* Opens fixture_producer; `options` NULL: a 64 KiB ring. dir is set. */
void fixture_open(const struct qwp_producer_options *options);

struct reader {
    int dir_fd;
    struct qwp_ring_rx rx;
    unsigned char *entry;
    struct qwp_shape **shapes;
    uint32_t shape_count;
    char **symbols;
    uint32_t *symbol_lens;
    uint32_t symbol_count;
    uint64_t pos;
};

struct record {
    const struct qwp_shape *shape;
    const unsigned char *at;
    uint32_t size_bytes;
    uint8_t flags;
    uint64_t pos;
};

/* Opens the only ring of the fixture's directory. */
void reader_open(struct reader *reader);
void reader_close(struct reader *reader);
/* Next published record, judged by the rules of its layout; false: none. */
bool reader_next(struct reader *reader, struct record *record);
/* All that was read is stored: frees its room in the ring. */
void reader_release(struct reader *reader, uint64_t rows);
/* Asserts that nothing more is published. */
void reader_expect_end(struct reader *reader);

/* Column of that name; fails the test when there is none. */
uint32_t record_column(const struct record *record, const char *name);
bool record_is_null(const struct record *record, uint32_t column);
const unsigned char *record_field(const struct record *record, uint32_t column);
/* Variable part of a non-null column, or of a symbol that travels as text. */
const unsigned char *record_part(const struct record *record, uint32_t column, uint32_t *len);
/* Text of a symbol, wherever it is. */
const char *record_symbol(const struct reader *reader, const struct record *record, uint32_t column,
                          uint32_t *len);
int64_t record_time(const struct record *record);

/* result and fixture_err's text. */
void expect(enum qwp_result result, enum qwp_result expected, const char *text);

/* Runs the suite and gives what main() returns. */
int fixture_run(Suite *suite);

#endif
