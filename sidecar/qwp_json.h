/* qwp_json: writing JSON, just enough for status and check.
 *
 * Trust: any text comes out as a valid JSON string of one line: what is no UTF-8 is replaced. */
#ifndef QWP_JSON_H
#define QWP_JSON_H

#include <stdio.h>

/* A quoted string. */
void qwp_json_text(FILE *out, const char *text);

/* Makes a text of unknown origin fit for a terminal, in place: control characters, and everything
 * beyond ASCII when it is no valid UTF-8, become '?'. */
void qwp_text_clean(char *text);

#endif
