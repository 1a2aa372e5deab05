/* qwp_durability: what "stored" survives. */
#ifndef QWP_DURABILITY_H
#define QWP_DURABILITY_H

enum qwp_durability {
    QWP_DURABILITY_MEMORY = 0,   /* every process, not the host */
    QWP_DURABILITY_PERIODIC = 1, /* the host too, up to the last sync */
};

#endif
