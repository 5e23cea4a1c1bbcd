// A precision of float32 products that belongs to one thread, for libraries inside a host's
// process.
#pragma once

#include "steelyard/kernels/matmul_precision.h"

namespace steelyard::kernels {

// While an object exists, the calling thread's products have its precision, whatever the process's
// is (kernels/backend.h): on the CPU, and on a GPU those that the engine queues. Objects nest.
class OwnMatmulPrecision {
 public:
  explicit OwnMatmulPrecision(MatmulPrecision precision);
  ~OwnMatmulPrecision();
  OwnMatmulPrecision(const OwnMatmulPrecision&) = delete;
  OwnMatmulPrecision& operator=(const OwnMatmulPrecision&) = delete;

  // The calling thread's; null where it has none.
  static MatmulPrecision* current();

 private:
  MatmulPrecision precision_;
  MatmulPrecision* previous_;
};

}  // namespace steelyard::kernels
