/* qwp_feed_run: the parent of a feed: forks the workers, reads the input, deals it out, shows what
 * is going on, and tells at the end what came of it. */
#ifndef QWP_FEED_RUN_H
#define QWP_FEED_RUN_H

#include "clients/c/feed/qwp_feed_options.h"

/* The exit status: 0 all rows acknowledged, 1 not. */
int qwp_feed_run(const struct qwp_feed_options *options);

#endif
