/* qwp_answer: the kinds of rejection that a server may answer with, for figures and texts. */
#ifndef QWP_ANSWER_H
#define QWP_ANSWER_H

#include <stdint.h>

#include "ipc/qwp_control_layout.h"

/* Of a status on the wire, which may be anything: below QWP_CONTROL_ANSWERS. */
uint32_t qwp_answer_index(uint8_t status);
/* "SCHEMA_MISMATCH" and so on, "unknown" for the last. */
const char *qwp_answer_name(uint32_t index);

#endif
