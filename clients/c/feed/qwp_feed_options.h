/* qwp_feed_options: the command line of qwp-feed, parsed once. */
#ifndef QWP_FEED_OPTIONS_H
#define QWP_FEED_OPTIONS_H

#include "clients/c/feed/qwp_feed_csv.h"
#include "clients/c/feed/qwp_feed_reader.h"

enum { QWP_FEED_PROCESSES_MAX = 256 };

struct qwp_feed_options {
    enum qwp_feed_format format;
    const char *const *paths;
    uint32_t path_count;
    /* the ring */
    const char *dir;
    const char *instance;
    const char *producer; /* its name */
    uint64_t ring_bytes;
    uint64_t definition_bytes;
    /* what the input means */
    const char *table;
    enum qwp_feed_unit precision; /* of the line protocol's timestamps */
    struct qwp_feed_csv_options csv;
    enum qwp_feed_at_choice at;
    /* how it is sent */
    uint32_t processes;
    uint64_t repeat; /* 0: for ever */
    bool follow;
    double rate; /* rows per second, 0: as fast as it goes */
    bool no_wait;
    double ack_timeout_s; /* 0: for ever */
    const char *skip_bad; /* path; NULL: a bad line ends the feed */
    const char *seq_column;
    const char *producer_column;
    bool dry_run;
    /* what is told */
    bool json;
    bool progress;
};

enum qwp_feed_parsed { QWP_FEED_RUN, QWP_FEED_EXIT_OK, QWP_FEED_EXIT_USAGE };

/* Prints help, version or what is wrong by itself. The options borrow from argv. */
enum qwp_feed_parsed qwp_feed_options_parse(int argc, char **argv, struct qwp_feed_options *out);

#endif
