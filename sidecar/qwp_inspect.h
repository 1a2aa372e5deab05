/* qwp_inspect: `qwp-sidecar inspect DIR`: what lies in a store-and-forward slot, ours or another
 * client's.
 *
 * Reads only, takes no lock, changes nothing: a slot may be inspected while it is in use, and then
 * its last frames may be seen or not.
 *
 * Trust: everything is judged as recovery would judge it; texts are cleaned for the terminal. */
#ifndef QWP_INSPECT_H
#define QWP_INSPECT_H

#include "sidecar/qwp_options.h"

/* Exit code: 0 sound, 1 not a readable slot, 4 damage was found (and is listed). */
int qwp_inspect_run(const struct qwp_options *options);

#endif
