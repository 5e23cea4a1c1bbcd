/* Trains a two-layer network to 8 bits from C99: the loss, the optimizer and the loop are this
 * program's, the network with its quantizers is the library's.
 *
 *   cc -std=c99 12_train_in_c.c -lsteelyard_c -lm -o train_in_c
 *   ./train_in_c model.onnx FOLDER [cpu|cuda]
 *
 * model.onnx: one input [N, 2] and one output [N, 2], such as
 *   torch.onnx.export(Sequential(Linear(2, 16), ReLU(), Linear(16, 2)), torch.zeros(1, 2), "model.onnx",
 *                     input_names=["x"], dynamic_axes={"x": {0: "N"}})
 * FOLDER: gets the integer model. The program fails unless the network learns which points have
 * coordinates of one sign, and the integer model computes what was trained. docs/c.md explains the
 * calls.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "steelyard/c/steelyard_c.h"

enum { kPoints = 256, kFeatures = 2, kClasses = 2, kSteps = 200, kMostParameters = 16 };

static const char *kRecipe =
    "version: 1\n"
    "name: train-in-c\n"
    "quantize:\n"
    "  groups:\n"
    "    - targets: [Linear]\n"
    "      weights: {num_bits: 8, symmetric: true, strategy: channel}\n"
    "      activations: {num_bits: 8, symmetric: false}\n";

static steelyard_context *context;

static void check(steelyard_status status) {
  if (!status) return;
  fprintf(stderr, "error %d: %s\n", (int)status, steelyard_context_message(context));
  exit(1);
}

/* Memory of this program's, aligned as the library wants it. */
static DLManagedTensor *new_tensor(DLDevice device, int32_t ndim, const int64_t *shape) {
  const DLDataType f32 = {kDLFloat, 32, 1};
  DLManagedTensor *tensor;
  check(steelyard_tensor_create(context, device, f32, ndim, shape, &tensor));
  return tensor;
}

static float *values_of(const DLManagedTensor *tensor) { return tensor->dl_tensor.data; }

static int64_t size_of(const DLTensor *tensor) {
  int64_t size = 1;
  for (int32_t i = 0; i < tensor->ndim; ++i) size *= tensor->shape[i];
  return size;
}

static void end(DLManagedTensor *tensor) {
  if (tensor) tensor->deleter(tensor);
}

static void copy(const DLManagedTensor *from, const DLManagedTensor *to) {
  check(steelyard_tensor_copy(context, NULL, &from->dl_tensor, &to->dl_tensor));
}

/* A parameter: its values and velocity on the host, and where the network has it. On the CPU the
 * network uses `values` itself, so that a step of the optimizer is seen without a copy. */
typedef struct {
  const char *name;
  DLManagedTensor *values, *velocity, *gradient;
  DLManagedTensor *in_network; /* NULL on the CPU */
} parameter;

static size_t take_parameters(steelyard_network *network, DLDevice device, parameter *list) {
  const DLDevice host = {kDLCPU, 0};
  size_t count;
  check(steelyard_network_count(context, network, STEELYARD_PARAMETERS, &count));
  if (count > kMostParameters) exit(1);
  for (size_t i = 0; i < count; ++i) {
    parameter *p = &list[i];
    DLManagedTensor *view;
    check(steelyard_network_name(context, network, STEELYARD_PARAMETERS, i, &p->name));
    check(steelyard_network_parameter(context, network, p->name, &view));
    const DLTensor *t = &view->dl_tensor;
    p->values = new_tensor(host, t->ndim, t->shape);
    p->velocity = new_tensor(host, t->ndim, t->shape);
    p->gradient = new_tensor(host, t->ndim, t->shape);
    memset(values_of(p->velocity), 0, (size_t)size_of(t) * sizeof(float));
    copy(view, p->values);
    if (device.device_type == kDLCPU) {
      check(steelyard_network_set_parameter(context, network, p->name, &p->values->dl_tensor));
      end(view);
      view = NULL;
    }
    p->in_network = view;
  }
  return count;
}

/* SGD with momentum. */
static void step(steelyard_network *network, parameter *list, size_t count, float rate) {
  for (size_t i = 0; i < count; ++i) {
    parameter *p = &list[i];
    DLManagedTensor *gradient;
    check(steelyard_network_gradient(context, network, p->name, &gradient));
    copy(gradient, p->gradient);
    end(gradient);
    float *w = values_of(p->values), *v = values_of(p->velocity), *g = values_of(p->gradient);
    for (int64_t k = 0; k < size_of(&p->values->dl_tensor); ++k) {
      v[k] = 0.9f * v[k] + g[k];
      w[k] -= rate * v[k];
    }
    if (p->in_network) copy(p->values, p->in_network);
  }
  check(steelyard_network_zero_gradients(context, network));
}

/* Mean cross-entropy of the logits and its gradient; counts the points that are classified right. */
static float loss_of(const float *logits, const int *labels, float *gradient, int *right) {
  float loss = 0;
  *right = 0;
  for (int n = 0; n < kPoints; ++n) {
    const float *z = logits + n * kClasses;
    const float largest = fmaxf(z[0], z[1]);
    const float e[kClasses] = {expf(z[0] - largest), expf(z[1] - largest)};
    for (int c = 0; c < kClasses; ++c) {
      const float p = e[c] / (e[0] + e[1]);
      gradient[n * kClasses + c] = (p - (c == labels[n] ? 1.0f : 0.0f)) / kPoints;
      if (c == labels[n]) loss -= logf(p) / kPoints;
    }
    *right += (z[1] > z[0]) == labels[n];
  }
  return loss;
}

/* Points in [-1, 1)^2, the same on every machine. */
static void make_points(float *points, int *labels) {
  uint32_t state = 1;
  for (int i = 0; i < kPoints * kFeatures; ++i) {
    state = state * 1664525u + 1013904223u;
    points[i] = (float)(state >> 8) / (float)(1 << 23) - 1.0f;
  }
  for (int n = 0; n < kPoints; ++n) labels[n] = points[2 * n] * points[2 * n + 1] > 0;
}

static steelyard_network *new_network(const char *path, DLDevice device) {
  steelyard_network_descriptor descriptor;
  steelyard_network *network;
  const char *plan;
  steelyard_network_descriptor_init(&descriptor, sizeof descriptor);
  descriptor.onnx_path = path;
  descriptor.recipe = kRecipe;
  descriptor.device = device;
  check(steelyard_network_create(context, &descriptor, &network));
  check(steelyard_network_plan(context, network, STEELYARD_TEXT, &plan));
  printf("%s", plan);
  return network;
}

int main(int argc, char **argv) {
  if (argc < 3) {
    fprintf(stderr, "usage: %s model.onnx FOLDER [cpu|cuda]\n", argv[0]);
    return 2;
  }
  const DLDevice host = {kDLCPU, 0};
  DLDevice device = host;
  if (argc > 3 && strcmp(argv[3], "cuda") == 0) device.device_type = kDLCUDA;
  check(steelyard_context_create(&context));
  check(steelyard_context_set_threads(context, 1));
  steelyard_network *network = new_network(argv[1], device);

  const int64_t inputs[] = {kPoints, kFeatures}, outputs[] = {kPoints, kClasses};
  DLManagedTensor *points = new_tensor(host, 2, inputs), *x = new_tensor(device, 2, inputs);
  DLManagedTensor *logits = new_tensor(host, 2, outputs), *gradient = new_tensor(host, 2, outputs);
  DLManagedTensor *grad_output = new_tensor(device, 2, outputs);
  int labels[kPoints], right = 0;
  make_points(values_of(points), labels);
  copy(points, x);
  const DLTensor *batch[] = {&x->dl_tensor};
  check(steelyard_network_calibrate(context, network, NULL, 1, 1, batch));

  parameter parameters[kMostParameters];
  const size_t count = take_parameters(network, device, parameters);
  check(steelyard_network_set_training(context, network, 1));
  float loss = 0;
  for (int i = 0; i < kSteps; ++i) {
    DLManagedTensor *output;
    steelyard_pass *pass;
    check(steelyard_network_forward(context, network, NULL, 1, batch, 0, &output, &pass));
    copy(output, logits);
    loss = loss_of(values_of(logits), labels, values_of(gradient), &right);
    copy(gradient, grad_output);
    check(steelyard_pass_backward(context, pass, NULL, &grad_output->dl_tensor));
    end(output);
    steelyard_pass_destroy(pass);
    step(network, parameters, count, 0.3f);
  }
  check(steelyard_network_require_finite(context, network));
  printf("after %d steps: loss %.3f, %d of %d points right\n", kSteps, loss, right, kPoints);

  char path[4096];
  snprintf(path, sizeof path, "%s/train_in_c.safetensors", argv[2]);
  check(steelyard_network_set_training(context, network, 0));
  check(steelyard_network_export(context, network, "safetensors", path));
  steelyard_verification verdict;
  const char *text;
  steelyard_verification_init(&verdict, sizeof verdict);
  check(steelyard_network_verify(context, network, NULL, 1, batch, path, &verdict, &text));
  printf("%s", text);

  steelyard_network_destroy(network);
  for (size_t i = 0; i < count; ++i) {
    end(parameters[i].values);
    end(parameters[i].velocity);
    end(parameters[i].gradient);
    end(parameters[i].in_network);
  }
  DLManagedTensor *rest[] = {points, x, logits, gradient, grad_output};
  for (int i = 0; i < 5; ++i) end(rest[i]);
  steelyard_context_destroy(context);
  return right > 0.9 * kPoints && verdict.same && verdict.differing == 0 ? 0 : 1;
}
