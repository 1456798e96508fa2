/* Weights of any float type as f32, and what every function here refuses alike. Structs of the caller's are read where
 * they lie, since hooks use them later; so each is checked before a field of it is looked at. */
#include "layers/layers.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

twh_status twh__layers_refuse(twh_error *error, twh_status status, const char *format, ...)
{
  twh_error filled;
  va_list   arguments;

  if (error == NULL || error->struct_size < sizeof(uint32_t) + sizeof(twh_status)) return status;
  twh_error_init(&filled);
  filled.struct_size = error->struct_size;
  filled.status = status;
  filled.slot = -1;
  filled.call = filled.row = -1;
  va_start(arguments, format);
  vsnprintf(filled.message, sizeof filled.message, format, arguments);
  va_end(arguments);
  if (error->struct_size > sizeof filled) memset((char *)error + sizeof filled, 0, error->struct_size - sizeof filled);
  memcpy(error, &filled, filled.struct_size < sizeof filled ? filled.struct_size : sizeof filled);
  if (filled.struct_size < sizeof filled && filled.struct_size > offsetof(twh_error, message))
    ((char *)error)[filled.struct_size - 1] = 0;
  return status;
}

twh_status twh__layers_struct(const void *given, size_t bytes, const char *name, twh_error *error)
{
  uint32_t size;

  memcpy(&size, given, sizeof size);
  if (size == 0) return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.struct_size is 0; use the struct's init function", name);
  if (size < bytes) return twh__layers_refuse(error, TWH_E_VERSION, "%s.struct_size is %u, too small", name, (unsigned)size);
  for (size_t at = bytes; at < size; ++at) {
    if (((const unsigned char *)given)[at] != 0)
      return twh__layers_refuse(error, TWH_E_VERSION, "%s has fields that this version does not know", name);
  }
  return TWH_OK;
}

static int64_t values_row_stride(const twh_matrix *matrix)
{
  return matrix->row_stride != 0 ? matrix->row_stride : matrix->cols;
}

twh_status twh__layers_matrix(const twh_matrix *matrix, int64_t rows, int64_t cols, int optional, const char *name,
                              twh_error *error)
{
  twh_status status;

  if (matrix == NULL) return optional ? TWH_OK : twh__layers_refuse(error, TWH_E_ARGUMENT, "%s is NULL", name);
  status = twh__layers_struct(matrix, sizeof *matrix, name, error);
  if (status != TWH_OK) return status;
  if (matrix->dtype != TWH_F32 && matrix->dtype != TWH_F16 && matrix->dtype != TWH_BF16)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.dtype is %d; it must be TWH_F32, TWH_F16 or TWH_BF16", name,
                              (int)matrix->dtype);
  if (rows < 0 && (matrix->rows < 1 || matrix->cols != cols))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s is %lld x %lld; it must have %lld columns and a row", name,
                              (long long)matrix->rows, (long long)matrix->cols, (long long)cols);
  if (rows >= 0 && (matrix->rows != rows || matrix->cols != cols))
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s is %lld x %lld; it must be %lld x %lld", name,
                              (long long)matrix->rows, (long long)matrix->cols, (long long)rows, (long long)cols);
  if (matrix->row_stride != 0 && matrix->row_stride < cols)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.row_stride is %lld; a row has %lld elements", name,
                              (long long)matrix->row_stride, (long long)cols);
  if (values_row_stride(matrix) > INT64_MAX / (int64_t)sizeof(float) / matrix->rows)
    return twh__layers_refuse(error, TWH_E_OVERFLOW, "%s: rows * row_stride does not fit 63 bits", name);
  if (matrix->data == NULL) return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.data is NULL", name);
  if ((uintptr_t)matrix->data % (matrix->dtype == TWH_F32 ? sizeof(float) : sizeof(uint16_t)) != 0)
    return twh__layers_refuse(error, TWH_E_ARGUMENT, "%s.data is not aligned to its data type", name);
  return TWH_OK;
}

/* The f32 with these bits. */
static float values_float(uint32_t bits)
{
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* binary16 to f32, exactly. Shifted up, a subnormal is a number of its digits times 2^-24; as an f32 of exponent 1 it would be
 * 1 + digits, so 1 is taken away. */
static float values_from_f16(uint16_t half)
{
  const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = (uint32_t)(half & 0x7fffu) << 13;

  if (rest >= 0x7c00u << 13) return values_float(sign | 0x7f800000u | (rest & 0x007fffffu));
  if (rest < 0x0400u << 13) {
    const float digits = values_float(0x38800000u + rest) - values_float(0x38800000u); /* 2^-14 + digits, less 2^-14 */
    return sign != 0 ? -digits : digits;
  }
  return values_float(sign | (rest + (112u << 23)));
}

void twh__layers_values(const twh_matrix *matrix, float missing, int64_t row, int64_t first, int64_t n, float *to)
{
  const int64_t at = matrix != NULL ? row * values_row_stride(matrix) + first : 0;

  if (matrix == NULL) {
    for (int64_t i = 0; i < n; ++i) to[i] = missing;
  } else if (matrix->dtype == TWH_F32) {
    memcpy(to, (const float *)matrix->data + at, (size_t)n * sizeof *to);
  } else if (matrix->dtype == TWH_BF16) {
    const uint16_t *from = (const uint16_t *)matrix->data + at;
    for (int64_t i = 0; i < n; ++i) to[i] = values_float((uint32_t)from[i] << 16);
  } else {
    const uint16_t *from = (const uint16_t *)matrix->data + at;
    for (int64_t i = 0; i < n; ++i) to[i] = values_from_f16(from[i]);
  }
}
