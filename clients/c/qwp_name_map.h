/* qwp_name_map: name without regard to case -> number, for tables and columns.
 *
 * Keeps hashes only; names stay with the owner, who hands them out by number. */
#ifndef QWP_NAME_MAP_H
#define QWP_NAME_MAP_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_shape.h"

struct qwp_name_map {
    uint64_t *slots; /* hash << 32 | number + 1; 0: free */
    uint32_t mask;
    uint32_t count;
};

typedef struct qwp_name (*qwp_name_of_fn)(const void *owner, uint32_t number);

void qwp_name_map_fini(struct qwp_name_map *map);
/* Room for `count` names in all. False: no memory, nothing changed. */
bool qwp_name_map_reserve(struct qwp_name_map *map, uint32_t count);
/* Adds `name`, which is valid UTF-8 and not there yet; room for it is reserved. */
void qwp_name_map_add(struct qwp_name_map *map, struct qwp_name name, uint32_t number);
/* The number of `name`, or -1; any bytes may be asked for. */
int32_t qwp_name_map_find(const struct qwp_name_map *map, struct qwp_name name,
                          qwp_name_of_fn name_of, const void *owner);

#endif
