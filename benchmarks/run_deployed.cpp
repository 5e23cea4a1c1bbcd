// Runs a deployed model again and again on one sample, with one thread and the runtime alone:
//
//   run_deployed model.safetensors INPUT OUTPUT RUNS
//
// INPUT has the bytes of the sample as the model takes it; OUTPUT gets the last run's, float32.
// Runs once more before, and calls getpriority() before and after the runs that count, for
// count_instructions.c.
#include <sys/resource.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>

#include "steelyard/kernels/backend.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"

int main(int argc, char** argv) {
  using namespace steelyard;
  if (argc != 5) return std::fprintf(stderr, "usage: run_deployed MODEL INPUT OUTPUT RUNS\n"), 2;
  try {
    kernels::set_num_threads(1);
    const deploy::Interpreter model(deploy::load_graph(argv[1]), deploy::Engine::kFast);
    const deploy::Graph& graph = model.graph();
    Shape shape = graph.values[graph.input].shape;
    shape.insert(shape.begin(), 1);
    const Tensor x = Tensor::empty(shape, graph.preprocessing.dtype);
    std::ifstream(argv[2], std::ios::binary).read(static_cast<char*>(x.raw()), x.bytes());
    Tensor y = model.run_raw(x);
    getpriority(PRIO_PROCESS, 0);
    for (int run = std::stoi(argv[4]); run > 0; --run) y = model.run_raw(x);
    getpriority(PRIO_PROCESS, 0);
    std::ofstream(argv[3], std::ios::binary).write(static_cast<const char*>(y.raw()), y.bytes());
  } catch (const std::exception& error) {
    return std::fprintf(stderr, "error: %s\n", error.what()), 1;
  }
  return 0;
}
