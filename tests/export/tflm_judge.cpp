// Runs a .tflite file in a TFLite Micro whose sources are at hand (build_tflm_judge compiles both),
// for check_tflite.py.
//
// usage: tflm_judge MODEL.tflite TENSOR... It reads codes of the input from stdin, sample after
// sample, and writes for each the codes of the tensors with these indices.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tensorflow/lite/micro/micro_allocator.h"
#include "tensorflow/lite/micro/micro_interpreter.h"
#include "tensorflow/lite/micro/micro_mutable_op_resolver.h"
#include "tensorflow/lite/micro/micro_utils.h"
#include "tensorflow/lite/schema/schema_generated.h"

namespace {

constexpr std::size_t kArenaBytes = std::size_t{16} << 20;  // more than any case needs
constexpr unsigned kOperators = 25;

using Resolver = tflite::MicroMutableOpResolver<kOperators>;

// The operators of docs/microcontrollers.md.
void add_operators(Resolver& resolver) {
  resolver.AddAdd();
  resolver.AddAveragePool2D();
  resolver.AddConcatenation();
  resolver.AddConv2D();
  resolver.AddDepthwiseConv2D();
  resolver.AddFullyConnected();
  resolver.AddHardSwish();
  resolver.AddLeakyRelu();
  resolver.AddLogistic();
  resolver.AddMaxPool2D();
  resolver.AddMean();
  resolver.AddMul();
  resolver.AddPad();
  resolver.AddPadV2();
  resolver.AddQuantize();
  resolver.AddRelu();
  resolver.AddReshape();
  resolver.AddResizeNearestNeighbor();
  resolver.AddSlice();
  resolver.AddSoftmax();
  resolver.AddStridedSlice();
  resolver.AddTanh();
  resolver.AddTranspose();
  resolver.AddTransposeConv();
  resolver.AddUnidirectionalSequenceLSTM();
}

int run(const char* path, const std::vector<int>& tensors) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  alignas(16) static std::uint8_t arena[kArenaBytes];
  Resolver resolver;
  add_operators(resolver);
  // This planner gives every tensor a place of its own.
  auto* allocator =
      tflite::MicroAllocator::Create(arena, kArenaBytes, tflite::MemoryPlannerType::kLinear);
  tflite::MicroInterpreter interpreter(tflite::GetModel(bytes.data()), resolver, allocator);
  if (interpreter.AllocateTensors() != kTfLiteOk) return 1;
  const TfLiteTensor* input = interpreter.input(0);
  while (std::fread(input->data.raw, 1, input->bytes, stdin) == input->bytes) {
    if (interpreter.Reset() != kTfLiteOk) return 1;
    if (interpreter.Invoke() != kTfLiteOk) return 1;
    for (const int index : tensors) {
      const TfLiteEvalTensor* tensor = interpreter.GetTensor(index);
      std::fwrite(tensor->data.raw, 1, tflite::EvalTensorBytes(tensor), stdout);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> tensors;
  for (int i = 2; i < argc; ++i) tensors.push_back(std::atoi(argv[i]));
  return tensors.empty() ? 2 : run(argv[1], tensors);
}
