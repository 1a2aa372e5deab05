/* qwp_feed_csv: rows from comma-separated values (RFC 4180, any one-byte delimiter).
 *
 * What the columns are is settled once, before the first row (qwp_feed_csv_settle()): names from
 * the header or the options, types from the options or from what the first rows hold. Later rows
 * that do not fit are bad.
 *
 * Inferred types, the first that all values of a column fit: long (no leading zeros, so that codes
 * like 007 stay text), double (but for integers too large for a long), boolean (true or false),
 * timestamp (ISO 8601; timestamp_ns with more than six digits of a fraction), uuid, else varchar; a
 * column without any value is varchar.
 *
 * An empty field is a null; an empty field in quotes is an empty text for varchar and symbol, else
 * a null. Blank lines are skipped; a quote within an unquoted field is an ordinary character.
 *
 * Ownership: a settled layout owns its names, is const afterwards, and may be shared by fork. */
#ifndef QWP_FEED_CSV_H
#define QWP_FEED_CSV_H

#include "clients/c/feed/qwp_feed_parser.h"

struct qwp_feed_csv_options {
    char delimiter;      /* 0: ',' */
    bool no_header;      /* the first line is a row already */
    const char *columns; /* "a,b,c": names; NULL: from the header, or from the schema in order */
    const char *schema;  /* "name:type,...", for some or all columns; NULL: infer all */
    const char *symbols; /* "a,b": these are symbols; NULL: none */
    const char *time;    /* column that is the row's timestamp; NULL: the server's time */
    struct qwp_feed_time_format time_format;
    enum qwp_feed_at_choice at;
    size_t infer_rows; /* 0: 1000 */
};

struct qwp_feed_csv_column {
    char *name;
    uint8_t type; /* 0: left out, or the time */
    uint8_t parameter;
    bool is_time;
};

struct qwp_feed_csv_layout {
    struct qwp_feed_csv_column *columns;
    uint32_t column_count;
    char delimiter;
    bool has_time;
    struct qwp_feed_time_format time_format; /* never AUTO */
    enum qwp_at at;
    size_t header_bytes; /* of the header line, 0: none; every file begins with the same */
};

/* `sample`: whole records from the start of the file, as a block (qwp_feed_parser.h). QWP_INVALID
 * with the reason: an unknown column in the options, no header, a bad type, nothing to infer a
 * time's format from. */
QWP_MUST_USE enum qwp_result qwp_feed_csv_settle(const struct qwp_feed_csv_options *options,
                                                 const char *sample, size_t len,
                                                 struct qwp_feed_csv_layout *out,
                                                 struct qwp_error *err);
void qwp_feed_csv_layout_close(struct qwp_feed_csv_layout *layout);

struct qwp_feed_csv;

/* Keeps the context's pointers, borrows the layout until it is destroyed. The context's table must
 * be set. On failure *err tells: a name that the server would not take, or no memory. */
QWP_MUST_USE enum qwp_result qwp_feed_csv_create(struct qwp_feed_csv **out,
                                                 const struct qwp_feed_context *context,
                                                 const struct qwp_feed_csv_layout *layout,
                                                 struct qwp_error *err);
void qwp_feed_csv_destroy(struct qwp_feed_csv *csv);

void qwp_feed_csv_begin(struct qwp_feed_csv *csv, const char *data, size_t len);
/* QWP_OK: *row; QWP_AGAIN: the block has no more; QWP_INVALID and others: *bad tells. */
QWP_MUST_USE enum qwp_result qwp_feed_csv_next(struct qwp_feed_csv *csv, struct qwp_feed_row *row,
                                               struct qwp_feed_bad *bad);
/* Where the record of the last row lies in its block. */
void qwp_feed_csv_last(const struct qwp_feed_csv *csv, size_t *off, size_t *len);

/* Length of the record at the start of `data`, with its line end; 0 when it does not end there. */
size_t qwp_feed_csv_record(const char *data, size_t len, char delimiter);

/* ---- fields, for this module's two files ---- */

struct qwp_feed_csv_field {
    const char *text; /* for a quoted one: within the quotes */
    size_t len;
    bool quoted;
    bool doubled; /* quotes within are doubled */
};

/* Takes the field at *at of a record that ends (line end excluded) at `end`; *at is then behind the
 * delimiter, or NULL after the last one. False: text behind the closing quote, or no such quote. */
bool qwp_feed_csv_take(const char **at, const char *end, char delimiter,
                       struct qwp_feed_csv_field *out);

#endif
