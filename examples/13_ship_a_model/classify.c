/* The class of an image, by a model that was exported:
 *   classify MODEL.safetensors PIXELS
 * PIXELS: the bytes of one sample as the model was trained on them, such as 28 * 28 grey pixels, or
 * f32 values. Static and stripped, with the kernels of AVX2, the program has 1.47 MB and needs the
 * compiler's libraries alone (docs/deployment.md). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <steelyard/runtime/steelyard_runtime.h>

static void* read_sample(const char* path, size_t bytes) {
  FILE* file = fopen(path, "rb");
  void* sample = malloc(bytes);
  const int whole = file != NULL && sample != NULL && fread(sample, 1, bytes, file) == bytes &&
                    fgetc(file) == EOF;
  if (file != NULL) fclose(file);
  if (whole) return sample;
  fprintf(stderr, "%s: expected %zu bytes\n", path, bytes);
  free(sample);
  return NULL;
}

static int64_t largest(const float* scores, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (scores[i] > scores[best]) best = i;
  }
  return best;
}

int main(int argc, char** argv) {
  char message[256] = "";
  steelyard_model* model = NULL;
  steelyard_sample input, output;
  void* sample = NULL;
  float* scores = NULL;
  int status = 1;
  if (argc != 3) return fprintf(stderr, "usage: %s MODEL.safetensors PIXELS\n", argv[0]), 2;
  if (steelyard_runtime_set_threads(1) ||
      steelyard_model_load(argv[1], &model, message, sizeof message) ||
      steelyard_model_input(model, &input) || steelyard_model_output(model, &output)) {
    fprintf(stderr, "error: %s\n", message);
    goto end;
  }
  const size_t bytes = (size_t)input.elements * (input.dtype == STEELYARD_RUNTIME_U8 ? 1 : 4);
  sample = read_sample(argv[2], bytes);
  scores = malloc((size_t)output.elements * sizeof *scores);
  if (sample == NULL || scores == NULL) goto end;
  if (steelyard_model_run(model, 1, sample, bytes, scores, (size_t)output.elements * sizeof *scores,
                          message, sizeof message)) {
    fprintf(stderr, "error: %s\n", message);
    goto end;
  }
  const int64_t best = largest(scores, output.elements);
  const char* name = steelyard_model_class_name(model, best);
  printf("%lld %s\n", (long long)best, name == NULL ? "" : name);
  status = 0;
end:
  free(scores);
  free(sample);
  steelyard_model_destroy(model);
  return status;
}
