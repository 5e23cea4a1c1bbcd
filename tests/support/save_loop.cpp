// Saves checkpoints to argv[1] until it is killed: step k holds tensors filled with k. A byte on
// standard output tells that the first one is complete.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "steelyard/framework/files/checkpoint.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const steelyard::Tensor weights = steelyard::Tensor::zeros({256, 512});
  const steelyard::Tensor step = steelyard::Tensor::zeros({}, steelyard::DType::kI64);
  for (std::int64_t k = 1;; ++k) {
    weights.fill(static_cast<double>(k));
    step.fill(static_cast<double>(k));
    steelyard::save_checkpoint(
        argv[1], {{{"weights", weights}, {"step", step}}, {{"k", std::to_string(k)}}});
    if (k == 1 && ::write(STDOUT_FILENO, "r", 1) != 1) return 1;
  }
}
