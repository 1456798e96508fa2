/* plan --svg: the plan as a picture. */
#ifndef TOOLS_PICTURE_H
#define TOOLS_PICTURE_H

#include "complaint.h"
#include "options.h"
#include "setup.h"

/* Draw the plan into given->svg. Memory does not grow with the number of tiles. */
int picture_write(const options *given, const setup *all, complaint *error);

#endif
