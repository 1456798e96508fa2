/* How tests/abi/layout*.c say what a struct looks like and what a constant is: the compiler tells whether it is so. */
#ifndef TWH_TESTS_LAYOUT_H
#define TWH_TESTS_LAYOUT_H

#include <stddef.h>

#define SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "size of " #type)
#define FIELD(type, field, offset, bytes) \
  _Static_assert(offsetof(type, field) == (offset) && sizeof(((type *)0)->field) == (bytes), "layout of " #type "." #field)
#define VALUE(constant, value) _Static_assert((constant) == (value), "value of " #constant)

#endif
