/* qwp-feed: rows from files or standard input to QuestDB, by way of the qwp-sidecar of this host.
 */
#include <stdlib.h>

#include "clients/c/feed/qwp_feed_run.h"

int main(int argc, char **argv)
{
    enum { EXIT_USAGE = 2 };
    struct qwp_feed_options options;
    switch (qwp_feed_options_parse(argc, argv, &options)) {
    case QWP_FEED_EXIT_OK:
        return EXIT_SUCCESS;
    case QWP_FEED_EXIT_USAGE:
        return EXIT_USAGE;
    case QWP_FEED_RUN:
        break;
    }
    return qwp_feed_run(&options);
}
