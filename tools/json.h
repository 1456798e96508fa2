/* A JSON object, written a member at a time, on one line. */
#ifndef TOOLS_JSON_H
#define TOOLS_JSON_H

#include <stdint.h>
#include <stdio.h>

typedef struct json_object {
  FILE *to;
  int   members;
} json_object;

void json_open(json_object *object, FILE *to);
void json_whole(json_object *object, const char *key, int64_t value);
/* As few digits as give the same double back; null for what is no finite number. */
void json_real(json_object *object, const char *key, double value);
/* An array of n numbers. */
void json_wholes(json_object *object, const char *key, const int64_t *values, int n);
void json_text(json_object *object, const char *key, const char *value);
/* 1: true, 0: false, less: null. */
void json_truth(json_object *object, const char *key, int value);
/* A member that is an object itself, to be filled and closed before the next member of this one. */
void json_inner(json_object *object, const char *key, json_object *inner);
/* Ends the object, not the line. */
void json_close(json_object *object);

#endif
