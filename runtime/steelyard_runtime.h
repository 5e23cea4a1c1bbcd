/* Steelyard's runtime from C: exported models (model.safetensors), loaded and run.
 *
 * docs/deployment.md tells how to link. Every function that can fail returns a status: 0 is
 * success, so that `if (status)` handles errors. No exception leaves the library. What was wrong is
 * written to `message`, up to message_bytes with the 0 at its end; both may be NULL and 0. A NULL
 * where it is not allowed is an error, not a crash; a pointer that points to nothing valid is
 * undefined. */
#ifndef STEELYARD_RUNTIME_H
#define STEELYARD_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define STEELYARD_RUNTIME_API __attribute__((visibility("default")))
#else
#define STEELYARD_RUNTIME_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t steelyard_runtime_status;
enum {
  STEELYARD_RUNTIME_OK = 0,
  STEELYARD_RUNTIME_INVALID_ARGUMENT = 1, /* what the caller passed */
  STEELYARD_RUNTIME_INVALID_MODEL = 2,    /* no model, a damaged one, or one of a later version */
  STEELYARD_RUNTIME_OUT_OF_MEMORY = 3,
  STEELYARD_RUNTIME_FAILED = 4 /* anything else */
};

/* "0.1.0", of the library that was loaded. */
STEELYARD_RUNTIME_API const char* steelyard_runtime_version(void);

/* Threads of runs that the calling thread starts, at most 4096: 0, as many as the process may use
 * at once, by its affinity mask and the quota of its control group. Results do not depend on it. */
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_runtime_set_threads(int32_t threads);

/* ---- Models ---- */

typedef struct steelyard_model steelyard_model;

/* Reads a model from a file, or from its bytes, which need not stay, and checks all of it. */
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_model_load(const char* path,
                                                                    steelyard_model** model,
                                                                    char* message,
                                                                    size_t message_bytes);
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_model_load_bytes(const void* bytes,
                                                                          size_t byte_count,
                                                                          steelyard_model** model,
                                                                          char* message,
                                                                          size_t message_bytes);
/* Gives the system back what the model held, and free memory that its runs left for reuse. NULL:
 * nothing. */
STEELYARD_RUNTIME_API void steelyard_model_destroy(steelyard_model* model);

enum { STEELYARD_RUNTIME_F32 = 0, STEELYARD_RUNTIME_U8 = 1 };
enum { STEELYARD_RUNTIME_MAX_RANK = 8 };

/* One sample of what goes in or comes out, without the batch. Images are [height, width, channels].
 * The name is valid as long as the model. */
typedef struct {
  const char* name;
  int32_t dtype;
  int32_t rank;
  int64_t shape[STEELYARD_RUNTIME_MAX_RANK]; /* [rank] */
  int64_t elements;                          /* of a sample: the product of the shape */
} steelyard_sample;

/* What the model was trained on, before its preprocessing: u8 pixels or f32 values. */
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_model_input(const steelyard_model* model,
                                                                     steelyard_sample* input);
/* Its results, in f32. */
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_model_output(const steelyard_model* model,
                                                                      steelyard_sample* output);
/* The name of a class, valid as long as the model; NULL where it has no such one. */
STEELYARD_RUNTIME_API const char* steelyard_model_class_name(const steelyard_model* model,
                                                             int64_t number);

/* The outputs [samples, ...] of `samples` inputs [samples, ...], which are in the caller's memory,
 * dense, and of as many bytes as given; 0 samples are nothing to do, and their arrays may be NULL.
 * Sizes of a sample are fixed, those of steelyard_model_input(), also where the network was trained
 * with free ones. Several inputs of the network are one array here: a sample has all values of its
 * first input, then all of its second, each row-major, images [height, width, channels]. Several
 * outputs are one array in the same way. docs/deployment.md has an example. An error for NaN and
 * for an index that an embedding's table does not have. Any number of threads may run one model at
 * once. */
STEELYARD_RUNTIME_API steelyard_runtime_status steelyard_model_run(
    const steelyard_model* model, int64_t samples, const void* input, size_t input_bytes,
    float* output, size_t output_bytes, char* message, size_t message_bytes);

/* ---- Samples of what a program has, as training made them of its data ---- */

/* The sample of an image of any size, u8 [height, width, channels] of steelyard_model_input(): in
 * the model's colours, resized and cropped as the recipe's data.transforms did for evaluation.
 * `pixels` are rows from the top, row_bytes apart (at most 2^31), of `channels` bytes for a pixel:
 * 1 grey; 3 red, green and blue; 4 with transparency, which is dropped. An error where the result
 * has another size than the model takes. Reading files is the program's matter. */
STEELYARD_RUNTIME_API steelyard_runtime_status
steelyard_model_image(const steelyard_model* model, const uint8_t* pixels, int64_t height,
                      int64_t width, int32_t channels, size_t row_bytes, uint8_t* sample,
                      size_t sample_bytes, char* message, size_t message_bytes);

/* Columns of the table that the model was trained on, without its targets; 0 where it was none.
 * A name is valid as long as the model; NULL where there is no such column. */
STEELYARD_RUNTIME_API int64_t steelyard_model_column_count(const steelyard_model* model);
STEELYARD_RUNTIME_API const char* steelyard_model_column_name(const steelyard_model* model,
                                                              int64_t number);
/* The sample of a row, f32 [features] of steelyard_model_input(): a text for each column, as in a
 * CSV file without quotes. An error that names the column for what is no finite number, and for a
 * category that training did not see. */
STEELYARD_RUNTIME_API steelyard_runtime_status
steelyard_model_row(const steelyard_model* model, const char* const* fields, size_t field_count,
                    float* sample, size_t sample_bytes, char* message, size_t message_bytes);

#ifdef __cplusplus
}
#endif
#endif
