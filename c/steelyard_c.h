/* Steelyard from C: all of steelyard_c_plans.h, and networks in the caller's training loop.
 *
 * A network comes from an ONNX file and a recipe. The caller has the data, the loss, the optimizer
 * and the loop; the library has the network's forward and backward pass with its quantizers, the
 * plan, the export and the proof that the export computes what was trained. docs/c.md shows all of
 * it. */
#ifndef STEELYARD_C_H
#define STEELYARD_C_H

#include "steelyard_c_plans.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One thread at a time uses a network. Texts that its functions give live until the next call that
 * gives a text of it. Tensors that they give are the caller's to end and keep their memory alive;
 * what they view is said at each. */
typedef struct steelyard_network steelyard_network;

/* ---- From a file and a recipe ---- */

/* The size of an input that the file leaves free. */
typedef struct {
  const char* name; /* NULL or "": the only input */
  int32_t rank;
  const int64_t* shape; /* [rank], of one sample in the file's layout: without the batch */
} steelyard_sample_shape;

/* Which dimension of an input is the batch, where the file does not say it. */
typedef struct {
  const char* name; /* NULL or "": the only input */
  int32_t axis;     /* the first is 0 */
} steelyard_batch_axis;

typedef struct {
  size_t struct_bytes;
  const void* onnx; /* the bytes of a file, or NULL and the path below */
  size_t onnx_bytes;
  /* The file; with bytes, what messages call it and whose folder has tensors of files apart. */
  const char* onnx_path;
  /* YAML of `version`, `name`, `seed`, `quantize`, `schedule` and `export` (docs/recipes.md);
   * without `quantize` the network stays in float. */
  const char* recipe;
  const char* output; /* a value of the file in place of its outputs; NULL: those */
  size_t sample_count;
  const steelyard_sample_shape* samples;
  DLDevice device;
  size_t batch_axis_count;
  const steelyard_batch_axis* batch_axes;
} steelyard_network_descriptor;

STEELYARD_API void steelyard_network_descriptor_init(steelyard_network_descriptor* descriptor,
                                                     size_t struct_bytes);
STEELYARD_API steelyard_status
steelyard_network_create(steelyard_context* context, const steelyard_network_descriptor* descriptor,
                         steelyard_network** network);
STEELYARD_API void steelyard_network_destroy(steelyard_network* network); /* NULL: nothing */

enum { STEELYARD_TEXT = 0, STEELYARD_JSON = 1 };

/* What is quantized and how, a row for each tensor; "" of a network in float. */
STEELYARD_API steelyard_status steelyard_network_plan(steelyard_context* context,
                                                      steelyard_network* network, int32_t form,
                                                      const char** text);
/* What the import has to say, a line each. */
STEELYARD_API steelyard_status steelyard_network_notes(steelyard_context* context,
                                                       steelyard_network* network,
                                                       const char** text);

/* ---- Parameters and buffers, by name ----
 *
 * A parameter of a quantizer with learned scales is one too. Buffers are statistics of batch norms
 * and states of quantizers. */

enum {
  STEELYARD_PARAMETERS = 0,
  STEELYARD_BUFFERS = 1,
  STEELYARD_INPUTS = 2,
  STEELYARD_OUTPUTS = 3
};

/* How many there are, and the name of one; it lives as long as the network. */
STEELYARD_API steelyard_status steelyard_network_count(steelyard_context* context,
                                                       const steelyard_network* network,
                                                       int32_t kind, size_t* count);
STEELYARD_API steelyard_status steelyard_network_name(steelyard_context* context,
                                                      const steelyard_network* network,
                                                      int32_t kind, size_t index,
                                                      const char** name);

/* A view of the network's own memory: what is written there is used by the next call. */
STEELYARD_API steelyard_status steelyard_network_parameter(steelyard_context* context,
                                                           const steelyard_network* network,
                                                           const char* name,
                                                           DLManagedTensor** view);
STEELYARD_API steelyard_status steelyard_network_buffer(steelyard_context* context,
                                                        const steelyard_network* network,
                                                        const char* name, DLManagedTensor** view);
/* From now on the parameter is the caller's memory and what that holds: dense, of the parameter's
 * shape, dtype and device, aligned to 64 bytes. It must live as long as the network, the views of
 * the parameter and the passes, or until the parameter is set again. */
STEELYARD_API steelyard_status steelyard_network_set_parameter(steelyard_context* context,
                                                               steelyard_network* network,
                                                               const char* name,
                                                               const DLTensor* memory);
/* Whether backward passes compute its gradient; all do at first. */
STEELYARD_API steelyard_status steelyard_network_set_trainable(steelyard_context* context,
                                                               steelyard_network* network,
                                                               const char* name, int32_t trainable);
/* A view of its gradient, the sum of the backward passes since the last
 * steelyard_network_zero_gradients(); NULL where there was none. Valid until the next of either. */
STEELYARD_API steelyard_status steelyard_network_gradient(steelyard_context* context,
                                                          const steelyard_network* network,
                                                          const char* name, DLManagedTensor** view);
/* The same views of all parameters in one call, in the order of their names: as many as
 * steelyard_network_count() of STEELYARD_PARAMETERS says, NULL for those that have none. */
STEELYARD_API steelyard_status steelyard_network_gradients(steelyard_context* context,
                                                           const steelyard_network* network,
                                                           size_t count, DLManagedTensor** views);
STEELYARD_API steelyard_status steelyard_network_zero_gradients(steelyard_context* context,
                                                                steelyard_network* network);

/* ---- Forward and backward ---- */

/* Training: batch statistics, dropout and observers are active. Evaluation, as it begins: not. */
STEELYARD_API steelyard_status steelyard_network_set_training(steelyard_context* context,
                                                              steelyard_network* network,
                                                              int32_t training);

/* What one forward pass keeps for its backward pass. */
typedef struct steelyard_pass steelyard_pass;

/* The file's output [N, ...] of its inputs [N, ...], in the file's order and layouts: f32, of
 * inputs of whole numbers i64 or i32 as well; any strides. Several outputs are one [N, values], in
 * the file's order, images among them as [H, W, C]. The inputs are copied, and may change
 * when it returns (on a GPU: what is queued on `stream` later may change them). `pass`: NULL where
 * no backward pass follows; else the caller ends it by steelyard_pass_destroy(), and with
 * input_gradients = 1 it gives those of the inputs, too.
 * In evaluation values that are not finite are STEELYARD_NOT_FINITE where a quantizer met them. */
STEELYARD_API steelyard_status
steelyard_network_forward(steelyard_context* context, steelyard_network* network, void* stream,
                          size_t input_count, const DLTensor* const* inputs,
                          int32_t input_gradients, DLManagedTensor** output, steelyard_pass** pass);

/* The same, and each of several outputs by itself, as the file has it: `outputs` gets
 * `output_count` tensors, which is steelyard_network_count() of STEELYARD_OUTPUTS. */
STEELYARD_API steelyard_status steelyard_network_forward_outputs(
    steelyard_context* context, steelyard_network* network, void* stream, size_t input_count,
    const DLTensor* const* inputs, int32_t input_gradients, size_t output_count,
    DLManagedTensor** outputs, steelyard_pass** pass);

/* Adds the gradients of parameters and inputs, from that of the pass's output: f32, of its shape,
 * any strides. Several passes may wait for it at once, and a pass may be run back again. */
STEELYARD_API steelyard_status steelyard_pass_backward(steelyard_context* context,
                                                       steelyard_pass* pass, void* stream,
                                                       const DLTensor* grad_output);
/* The same from the gradient by each output, as steelyard_network_forward_outputs() gave it: f32,
 * any strides; NULL for zeros, but not for all of them. */
STEELYARD_API steelyard_status steelyard_pass_backward_outputs(steelyard_context* context,
                                                               steelyard_pass* pass, void* stream,
                                                               size_t output_count,
                                                               const DLTensor* const* gradients);
/* Forgets the gradients of the pass's inputs, which otherwise add up where a pass is run back
 * again. */
STEELYARD_API steelyard_status steelyard_pass_zero_gradients(steelyard_context* context,
                                                             steelyard_pass* pass);
/* A view of an input's gradient; NULL before the backward pass. */
STEELYARD_API steelyard_status steelyard_pass_input_gradient(steelyard_context* context,
                                                             const steelyard_pass* pass,
                                                             size_t index, DLManagedTensor** view);
STEELYARD_API void steelyard_pass_destroy(steelyard_pass* pass); /* NULL: nothing */

/* STEELYARD_NOT_FINITE where quantizers met NaN or infinite values since the last time that
 * somebody asked. On the CPU a backward pass asks; on a GPU asking waits, and is left to the
 * caller: once in many steps. */
STEELYARD_API steelyard_status steelyard_network_require_finite(steelyard_context* context,
                                                                steelyard_network* network);

/* ---- Ranges and schedule ---- */

/* Ranges from data before or instead of training: `inputs` are input_count for each batch. */
STEELYARD_API steelyard_status steelyard_network_calibrate(steelyard_context* context,
                                                           steelyard_network* network, void* stream,
                                                           size_t batches, size_t input_count,
                                                           const DLTensor* const* inputs);
/* The recipe's `schedule` for an epoch, from 0; a network begins in the first. */
STEELYARD_API steelyard_status steelyard_network_begin_epoch(steelyard_context* context,
                                                             steelyard_network* network,
                                                             int64_t epoch);
/* What the schedule switches, by hand, until the next epoch begins: whether observers follow
 * values, whether weights and activations are quantized, whether batch norms keep their
 * statistics. */
STEELYARD_API steelyard_status steelyard_network_set_observing(steelyard_context* context,
                                                               steelyard_network* network,
                                                               int32_t observing);
STEELYARD_API steelyard_status steelyard_network_set_quantizing(steelyard_context* context,
                                                                steelyard_network* network,
                                                                int32_t weights,
                                                                int32_t activations);
STEELYARD_API steelyard_status steelyard_network_freeze_batch_norms(steelyard_context* context,
                                                                    steelyard_network* network,
                                                                    int32_t frozen);
/* Where the random numbers of dropout begin anew; before, that is the recipe's `seed`. A forward
 * pass that is computed again after the same seed drops the same values. */
STEELYARD_API steelyard_status steelyard_network_set_seed(steelyard_context* context,
                                                          steelyard_network* network,
                                                          uint64_t seed);

/* ---- Files ---- */

/* A checkpoint (safetensors, docs/checkpoints.md) of parameters, buffers and random numbers.
 * Loading writes into the memory that the parameters have, and refuses a network or a plan of
 * another recipe. */
STEELYARD_API steelyard_status steelyard_network_save(steelyard_context* context,
                                                      const steelyard_network* network,
                                                      const char* path);
STEELYARD_API steelyard_status steelyard_network_load(steelyard_context* context,
                                                      steelyard_network* network, const char* path);
/* Writes the integer model: "onnx", "safetensors", "tflite" or "c" (docs/exports.md). */
STEELYARD_API steelyard_status steelyard_network_export(steelyard_context* context,
                                                        const steelyard_network* network,
                                                        const char* format, const char* path);

typedef struct {
  size_t struct_bytes;
  int64_t samples;
  int64_t codes;     /* of quantized tensors, and of parameters that differ */
  int64_t differing; /* of them, and of the parameters; 0: the same integers everywhere */
  int32_t same;      /* 1: no tensor differs by more than the rounding of sums of floats */
} steelyard_verification;

STEELYARD_API void steelyard_verification_init(steelyard_verification* verification,
                                               size_t struct_bytes);
/* Runs the trained network and the deployed one on the inputs and compares every tensor. `model`: a
 * file of steelyard_network_export() as "safetensors"; NULL: what it would write. `text`, where it
 * is not NULL: a line for each tensor that differs, and the verdict. That something differs is no
 * failure of the call. */
STEELYARD_API steelyard_status
steelyard_network_verify(steelyard_context* context, steelyard_network* network, void* stream,
                         size_t input_count, const DLTensor* const* inputs, const char* model,
                         steelyard_verification* verification, const char** text);

/* ---- GGUF files (docs/language_models.md) ---- */

typedef struct steelyard_gguf steelyard_gguf;

typedef struct {
  size_t struct_bytes;
  const char* name; /* as long as the file is open */
  const char* type; /* "q4_0" ...; of those that steelyard_blocks_layout knows and of others */
  int32_t rank;     /* 1 to 4 */
  int64_t shape[4]; /* as arrays have it: the innermost size last */
  uint64_t bytes;
} steelyard_gguf_tensor_info;

STEELYARD_API void steelyard_gguf_tensor_info_init(steelyard_gguf_tensor_info* info,
                                                   size_t struct_bytes);
/* Opens a file whose header is valid: every length, type and offset in it is checked. */
STEELYARD_API steelyard_status steelyard_gguf_open(steelyard_context* context, const char* path,
                                                   steelyard_gguf** gguf);
STEELYARD_API void steelyard_gguf_destroy(steelyard_gguf* gguf); /* NULL: nothing */
STEELYARD_API steelyard_status steelyard_gguf_count(steelyard_context* context,
                                                    const steelyard_gguf* gguf, size_t* count);
STEELYARD_API steelyard_status steelyard_gguf_tensor(steelyard_context* context,
                                                     const steelyard_gguf* gguf, size_t index,
                                                     steelyard_gguf_tensor_info* info);
/* The metadata's text of a key; a number of a key. NULL and NaN where it has none of that kind. */
STEELYARD_API steelyard_status steelyard_gguf_text(steelyard_context* context,
                                                   const steelyard_gguf* gguf, const char* key,
                                                   const char** text);
STEELYARD_API steelyard_status steelyard_gguf_number(steelyard_context* context,
                                                     const steelyard_gguf* gguf, const char* key,
                                                     double* number);
/* A tensor's bytes, into u8 [bytes] on the CPU. */
STEELYARD_API steelyard_status steelyard_gguf_read(steelyard_context* context,
                                                   const steelyard_gguf* gguf, size_t index,
                                                   const DLTensor* bytes);
/* Writes the file again, with its metadata, tensors and their order, in which tensors[i] of
 * `count` has the type types[i] and bytes[i], u8 on the CPU; others keep theirs. `file_type`: the
 * number in general.file_type (llama.cpp's llama_ftype), -1 as it was. `path` is replaced at once
 * and may be the file itself. */
STEELYARD_API steelyard_status steelyard_gguf_write(steelyard_context* context,
                                                    const steelyard_gguf* gguf, const char* path,
                                                    int32_t file_type, size_t count,
                                                    const size_t* tensors, const char* const* types,
                                                    const DLTensor* const* bytes);

#ifdef __cplusplus
}
#endif

#endif /* STEELYARD_C_H */
