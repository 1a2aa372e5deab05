/* qwp_conf_table: the keys of the connect string: the one list that parsing, defaults and the
 * reference come from. Fields are those of struct qwp_conf. */
#ifndef QWP_CONF_TABLE_H
#define QWP_CONF_TABLE_H

#include "core/conf/qwp_option.h"

enum { QWP_CONF_TABLE_COUNT = 73 };
extern const struct qwp_option qwp_conf_table[QWP_CONF_TABLE_COUNT];

/* By key or by one of its aliases; NULL: no such key. */
const struct qwp_option *qwp_conf_table_find(const char *key);

#endif
