/* Tensors as DLPack has them: the structures of its binary interface, in words of our own.
 *
 * They have DLPack's names, so that what other libraries give needs no cast, and the guard of
 * DLPack's own header: whichever of both is included first counts. A program that needs more of
 * DLPack than these structures includes that one first. */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where memory lies. These are the kinds that the library takes; others can be told from them. */
#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
  kDLCPU = 1,
  kDLCUDA = 2,
  kDLCUDAHost = 3 /* pinned memory of the host */
} DLDeviceType;

typedef struct {
  DLDeviceType device_type;
  int32_t device_id; /* 0 on the CPU */
} DLDevice;

/* The kind of a number. */
typedef enum {
  kDLInt = 0U,
  kDLUInt = 1U,
  kDLFloat = 2U,
  kDLBfloat = 4U,
  kDLBool = 6U
} DLDataTypeCode;

typedef struct {
  uint8_t code;   /* a DLDataTypeCode */
  uint8_t bits;   /* of one number */
  uint16_t lanes; /* numbers in an element: 1 */
} DLDataType;

/* A view: nobody's lifetime follows from it. */
typedef struct {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;       /* [ndim] */
  int64_t* strides;     /* [ndim], in elements; NULL: dense, the last axis first */
  uint64_t byte_offset; /* from data to the first element */
} DLTensor;

/* A tensor that its receiver owns, and ends by deleter(self). */
typedef struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx; /* the maker's */
  void (*deleter)(struct DLManagedTensor* self);
} DLManagedTensor;

#ifdef __cplusplus
}
#endif

#endif /* DLPACK_DLPACK_H_ */
