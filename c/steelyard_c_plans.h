/* Steelyard from C: contexts, tensors, quantization plans and observers on the caller's memory.
 *
 * steelyard_c.h has all of this and networks; this part alone is libsteelyard_c_plans, too, which
 * needs none of the libraries for files and images. docs/c.md tells how to link.
 *
 * Every function that can fail returns a status: 0 is success, so that `if (status)` handles
 * errors. What was wrong is in steelyard_context_message(). No exception leaves the library. A NULL
 * where it is not allowed is an error, not a crash; a pointer that points to nothing valid is
 * undefined.
 *
 * Structures begin with their size, which their *_init functions set: a program that was compiled
 * with an older header passes shorter ones to a newer library, which takes the rest for absent. */
#ifndef STEELYARD_C_PLANS_H
#define STEELYARD_C_PLANS_H

#include <stddef.h>
#include <stdint.h>

#include "steelyard_dlpack.h"

#if defined(__GNUC__)
#define STEELYARD_API __attribute__((visibility("default")))
#else
#define STEELYARD_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Statuses ---- */

typedef int32_t steelyard_status;
enum {
  STEELYARD_OK = 0,
  STEELYARD_INVALID_ARGUMENT = 1, /* what the caller passed: the message says what was expected */
  STEELYARD_INVALID_INPUT = 2,    /* a text or file: a recipe, a network, a checkpoint */
  STEELYARD_OUT_OF_MEMORY = 3,
  STEELYARD_NO_DEVICE = 4,  /* it does not exist, or the build has no support for it */
  STEELYARD_NOT_FINITE = 5, /* NaN or infinite values where a number is needed */
  STEELYARD_FAILED = 6      /* anything else: a full disk, an error of CUDA's, a defect */
};

/* "0.1.0", of the library that was loaded. */
STEELYARD_API const char* steelyard_version(void);

/* ---- Contexts ----
 *
 * How calls compute, and what the last failed one said. A context is used by one thread at a time;
 * threads with a context each run at once. Nothing else belongs to a context: a plan that was made
 * with one may be run with another. */

typedef struct steelyard_context steelyard_context;

/* The precision of float32 matrix products (docs/numerics.md): operands keep their 24 significant
 * bits, or are brought to 11 (CUDA only) or 8. */
enum { STEELYARD_FLOAT32 = 0, STEELYARD_TF32 = 1, STEELYARD_BF16 = 2 };

STEELYARD_API steelyard_status steelyard_context_create(steelyard_context** context);
STEELYARD_API void steelyard_context_destroy(steelyard_context* context); /* NULL: nothing */

/* The message of the last call with this context that failed, "" before the first; valid until the
 * next call with it. Of NULL: that a context was expected. */
STEELYARD_API const char* steelyard_context_message(const steelyard_context* context);

/* Threads of calls with this context, for the CPU, at most 4096; 0, as it begins: as many as OpenMP
 * has for the calling thread. Results do not depend on it where docs/numerics.md says so. */
STEELYARD_API steelyard_status steelyard_context_set_threads(steelyard_context* context,
                                                             int32_t threads);
STEELYARD_API steelyard_status steelyard_context_set_matmul_precision(steelyard_context* context,
                                                                      int32_t precision);

/* ---- Tensors ---- */

/* New memory of the library, aligned to 64 bytes, not initialized: what the caller owns, ended by
 * (*tensor)->deleter(*tensor). */
STEELYARD_API steelyard_status steelyard_tensor_create(steelyard_context* context, DLDevice device,
                                                       DLDataType dtype, int32_t ndim,
                                                       const int64_t* shape,
                                                       DLManagedTensor** tensor);

/* Copies elements between tensors of one shape and dtype, from any device to any; both dense. What
 * was queued before on `stream` (of a GPU's side, NULL: its default stream) is done first; the
 * copy is done when it returns. */
STEELYARD_API steelyard_status steelyard_tensor_copy(steelyard_context* context, void* stream,
                                                     const DLTensor* from, const DLTensor* to);

/* ---- Plans: one quantization of one tensor, chosen once and run many times ----
 *
 * kernels/quant_plan/quant_plan.h defines what each computes. A plan never changes: any number of
 * threads may run one at once, each with arrays and a workspace of its own. */

typedef struct steelyard_plan steelyard_plan;

enum { STEELYARD_QUANTIZE = 0, STEELYARD_DEQUANTIZE = 1, STEELYARD_FAKE_QUANTIZE = 2 };
enum { STEELYARD_FORWARD = 0, STEELYARD_BACKWARD = 1 };
enum { STEELYARD_F32 = 0, STEELYARD_F64 = 1, STEELYARD_F16 = 2, STEELYARD_VALUE_BF16 = 3 };
enum {
  STEELYARD_S8 = 0,
  STEELYARD_U8 = 1,
  STEELYARD_S4 = 2,
  STEELYARD_U4 = 3,
  STEELYARD_S2 = 4,
  STEELYARD_U2 = 5
};
/* Where scale and zero point come from: the caller's arrays; this call's extremes; a moving average
 * that they enter before the call quantizes; the average of earlier calls, which they enter after.
 */
enum { STEELYARD_GIVEN = 0, STEELYARD_DYNAMIC = 1, STEELYARD_CURRENT = 2, STEELYARD_DELAYED = 3 };
enum {
  STEELYARD_PER_TENSOR = 0,
  STEELYARD_PER_CHANNEL = 1, /* a scale for each slice of `axis` */
  STEELYARD_PER_TOKEN = 2,   /* for each row of the last axis */
  STEELYARD_PER_GROUP = 3,   /* for each `group_size` neighbours along `axis` */
  STEELYARD_PER_BLOCK = 4    /* for each rectangle of the last two axes */
};
enum { STEELYARD_MAX_RANK = 8 };

typedef struct {
  size_t struct_bytes;
  int32_t operation;
  int32_t direction;
  int32_t value_type;
  int32_t code_type;
  int32_t qmin, qmax; /* within the code type, qmin < qmax */
  int32_t statistics;
  int32_t symmetric;           /* 0 or 1: the scale from max |x|, zero points 0 */
  double averaging_constant;   /* of CURRENT and DELAYED: in (0, 1] */
  int32_t parameter_gradients; /* 0 or 1: backward of fake-quantize, of learned scales */
  int32_t granularity;
  double gradient_factor; /* of those: steelyard_lsq_gradient_factor() */
  int32_t axis;           /* negative ones count from the last */
  int32_t rank;
  int64_t group_size;
  int64_t block_rows, block_columns;
  int64_t shape[STEELYARD_MAX_RANK]; /* [rank] */
  int32_t strided; /* 0: every array of values is dense; 1: has the strides, in elements */
  DLDevice device;
  int64_t strides[STEELYARD_MAX_RANK];
  size_t workspace_limit_bytes; /* a plan that needs more is refused; 0: no limit */
} steelyard_plan_descriptor;

/* Fake-quantize forward of f32 to u8 codes [0, 255], one given scale, a tensor of one element, on
 * the CPU. `struct_bytes`: sizeof(steelyard_plan_descriptor) of the caller. */
STEELYARD_API void steelyard_plan_descriptor_init(steelyard_plan_descriptor* descriptor,
                                                  size_t struct_bytes);

STEELYARD_API steelyard_status steelyard_plan_create(steelyard_context* context,
                                                     const steelyard_plan_descriptor* descriptor,
                                                     steelyard_plan** plan);
STEELYARD_API void steelyard_plan_destroy(steelyard_plan* plan); /* NULL: nothing */

typedef struct {
  size_t struct_bytes;
  int64_t elements;
  int64_t sets; /* scales */
  int64_t code_bytes;
  int64_t mask_bytes;
  size_t workspace_bytes;
  const char* identity; /* "fake_quantize_forward_channel_f32_u8_cpu"; as long as the plan */
} steelyard_plan_info;

STEELYARD_API void steelyard_plan_info_init(steelyard_plan_info* info, size_t struct_bytes);
STEELYARD_API steelyard_status steelyard_plan_get_info(steelyard_context* context,
                                                       const steelyard_plan* plan,
                                                       steelyard_plan_info* info);

/* The arrays of a call; NULL: not given. All on the plan's device. Values have the plan's value
 * type, shape and strides. The others are dense: S is f64 for f64 values, else f32, whatever the
 * values are. */
typedef struct {
  size_t struct_bytes;
  const DLTensor* x;
  const DLTensor* grad_y;
  const DLTensor* y;          /* may be x */
  const DLTensor* grad_x;     /* may be grad_y */
  const DLTensor* codes;      /* 8 bits: i8 or u8 of as many elements; packed: u8 [code_bytes] */
  const DLTensor* mask;       /* u8 [mask_bytes] */
  const DLTensor* scale;      /* S [sets] */
  const DLTensor* zero_point; /* i32 [sets] */
  const DLTensor* grad_scale; /* S [sets] */
  const DLTensor* grad_zero_point;  /* S [sets] */
  const DLTensor* non_finite_count; /* i64 [1]: grows */
  const DLTensor* range_lo;         /* S [sets]: a moving average; lo > hi before the first */
  const DLTensor* range_hi;         /* S [sets] */
  const DLTensor* initialized;      /* u8 or bool [1]: whether the average has seen anything */
  const DLTensor* observing;        /* u8 or bool [1]: a switch, read on the device */
  const DLTensor* quantizing;       /* u8 or bool [1] */
} steelyard_plan_arrays;

STEELYARD_API void steelyard_plan_arrays_init(steelyard_plan_arrays* arrays, size_t struct_bytes);

/* Whether steelyard_plan_run() would take the arrays: types, lengths, devices, alignment, memory
 * that overlaps. With check_parameters the scales and zero points are read, too, which waits for
 * the default stream: finite, > 0, within the range. */
STEELYARD_API steelyard_status steelyard_plan_check(steelyard_context* context,
                                                    const steelyard_plan* plan,
                                                    const steelyard_plan_arrays* arrays,
                                                    int32_t check_parameters);

/* Computes; queued on `stream`, a cudaStream_t (NULL: the default stream; on the CPU it is NULL,
 * and the results are there on return). `workspace`: at least workspace_bytes of the plan's device,
 * aligned to 16 bytes, free again when the stream has passed; NULL where the plan needs none.
 * Everything is checked before anything is written. Scales are not looked at. */
STEELYARD_API steelyard_status steelyard_plan_run(steelyard_context* context,
                                                  const steelyard_plan* plan, void* stream,
                                                  void* workspace, size_t workspace_bytes,
                                                  const steelyard_plan_arrays* arrays);

/* Runs `count` forward plans with given statistics together: on a GPU in one launch for every 64.
 */
STEELYARD_API steelyard_status steelyard_plan_run_batch(steelyard_context* context, void* stream,
                                                        size_t count,
                                                        const steelyard_plan* const* plans,
                                                        const steelyard_plan_arrays* const* arrays);

/* 1 / sqrt(elements * Q): `elements` share a scale, the batch's axis not counted; Q = qmax for
 * symmetric codes, else qmax - qmin (LSQ, arXiv:1902.08153). */
STEELYARD_API steelyard_status steelyard_lsq_gradient_factor(steelyard_context* context,
                                                             int64_t elements, int32_t qmin,
                                                             int32_t qmax, int32_t symmetric,
                                                             double* factor);

/* ---- Observers: a range from many steps ---- */

typedef struct steelyard_observer steelyard_observer;

typedef struct {
  size_t struct_bytes;
  const char* type; /* "min_max", "moving_average", "histogram" ...: a wrong one lists them */
  int32_t num_bits; /* 2 to 16 */
  int32_t is_signed;
  int32_t symmetric;
  int32_t narrow_range;
  int64_t channels;
  double averaging_constant; /* of moving averages: the newest step's weight */
  double percentile;         /* of percentiles: how many of the values are kept */
  double limit;              /* of ranges that are known beforehand */
  DLDevice device;
} steelyard_observer_descriptor;

/* "min_max" of one channel, 8 bits, signed, symmetric, narrow, on the CPU. */
STEELYARD_API void steelyard_observer_descriptor_init(steelyard_observer_descriptor* descriptor,
                                                      size_t struct_bytes);
STEELYARD_API steelyard_status steelyard_observer_create(
    steelyard_context* context, const steelyard_observer_descriptor* descriptor,
    steelyard_observer** observer);
STEELYARD_API void steelyard_observer_destroy(steelyard_observer* observer); /* NULL: nothing */

/* Measures one step's f32 values, whose dimension `axis` (negative ones count from the last; not
 * read for one channel) has the channels. Values that are not finite are skipped and counted.
 * `stream`: where the values are made; the observer's work is queued after it. */
STEELYARD_API steelyard_status steelyard_observer_observe(steelyard_context* context,
                                                          steelyard_observer* observer,
                                                          void* stream, const DLTensor* values,
                                                          int32_t axis);
/* Writes scale f32 [channels] and zero point i32 [channels] of the range, on the observer's device;
 * what is queued on `stream` later sees them. */
STEELYARD_API steelyard_status steelyard_observer_qparams(steelyard_context* context,
                                                          const steelyard_observer* observer,
                                                          void* stream, const DLTensor* scale,
                                                          const DLTensor* zero_point);
/* The range of each channel as numbers, [channels]; lo > hi: nothing was seen. Waits for a GPU. */
STEELYARD_API steelyard_status steelyard_observer_range(steelyard_context* context,
                                                        const steelyard_observer* observer,
                                                        double* lo, double* hi, int64_t channels);
/* How many values were skipped. Waits for a GPU. */
STEELYARD_API steelyard_status steelyard_observer_non_finite(steelyard_context* context,
                                                             const steelyard_observer* observer,
                                                             int64_t* count);
STEELYARD_API steelyard_status steelyard_observer_reset(steelyard_context* context,
                                                        steelyard_observer* observer);

/* ---- Blocks of ggml's types, as GGUF files hold them (docs/language_models.md) ----
 *
 * Values are f32 [rows, columns] whose columns are whole blocks; blocks are u8 [rows, bytes of a
 * row]. Types are ggml's names: "f32", "f16", "bf16", "q4_0", "q4_1", "q8_0", "iq4_nl", "mxfp4" and
 * "q2_0", and of blocks that are decoded alone "q5_0", "q5_1" and "q2_k" to "q6_k". "inputs" is
 * what a product's inputs become: q8_0 as ggml rounds them on x86. "q4_0_searched",
 * "iq4_nl_searched" (as ggml_quantize_chunk makes it) and "mxfp4_searched" have searched scales,
 * where the plain names follow ggml's reference. All arrays are dense and on one device; `stream`
 * as for plans. */

/* How many elements and bytes a block has. */
STEELYARD_API steelyard_status steelyard_blocks_layout(steelyard_context* context, const char* type,
                                                       int64_t* elements, int64_t* bytes);
/* Blocks of values. `scales`: f32 [rows, blocks of a row], NULL for those of ggml's reference;
 * q4_0, q8_0, iq4_nl, mxfp4 and q2_0 take them, and the nearest codes. A block with a value that is
 * not finite becomes NaN. */
STEELYARD_API steelyard_status steelyard_blocks_encode(steelyard_context* context, void* stream,
                                                       const char* type, const DLTensor* values,
                                                       const DLTensor* scales,
                                                       const DLTensor* blocks);
/* Values of blocks. */
STEELYARD_API steelyard_status steelyard_blocks_decode(steelyard_context* context, void* stream,
                                                       const char* type, const DLTensor* blocks,
                                                       const DLTensor* values);
/* y f32 [rows, columns] = inputs [rows, terms], blocks of "inputs", times the transpose of weights
 * [columns, terms] of the type (q4_0, q8_0, iq4_nl, mxfp4 or q2_0): for each block the exact
 * integer sum times both scales, added in float32. */
STEELYARD_API steelyard_status steelyard_blocks_product(steelyard_context* context, void* stream,
                                                        const char* type, const DLTensor* inputs,
                                                        const DLTensor* weights, const DLTensor* y);

#ifdef __cplusplus
}
#endif

#endif /* STEELYARD_C_PLANS_H */
