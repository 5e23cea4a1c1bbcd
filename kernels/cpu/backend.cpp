#include "steelyard/kernels/backend.h"

#include <omp.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include "steelyard/kernels/cpu/onednn/kernels.h"
#include "steelyard/kernels/instructions.h"
#include "steelyard/kernels/own_precision.h"

namespace steelyard::kernels {
namespace {

Backend read_default_backend() {
  const std::vector<Backend> available = available_backends();
  const char* wanted = std::getenv("STEELYARD_CPU_BACKEND");
  if (wanted == nullptr || *wanted == '\0') return available.back();
  std::string expected;
  for (const Backend backend : available) {
    if (backend_name(backend) == wanted) return backend;
    expected += (expected.empty() ? "" : " or ") + std::string(backend_name(backend));
  }
  throw std::invalid_argument("[backend] expected STEELYARD_CPU_BACKEND to be " + expected +
                              ", got '" + wanted + "'");
}

thread_local MatmulPrecision* own_precision = nullptr;

}  // namespace

std::string_view backend_name(Backend backend) {
  return backend == Backend::kOneDnn ? "onednn" : "eigen";
}

std::vector<Backend> available_backends() {
  if (onednn::built()) return {Backend::kEigen, Backend::kOneDnn};
  return {Backend::kEigen};
}

Backend default_backend() {
  static const Backend backend = read_default_backend();
  return backend;
}

std::string backend_text() {
  const Backend backend = default_backend();
  std::ostringstream text;
  text << backend_name(backend) << ", kernels " << instructions_text();
  if (backend == Backend::kOneDnn) {
    text << ", oneDNN's instructions " << std::hex << onednn::instruction_set();
  }
  return text.str();
}

OwnMatmulPrecision::OwnMatmulPrecision(MatmulPrecision precision)
    : precision_(precision), previous_(std::exchange(own_precision, &precision_)) {}

OwnMatmulPrecision::~OwnMatmulPrecision() { own_precision = previous_; }

MatmulPrecision* OwnMatmulPrecision::current() { return own_precision; }

MatmulPrecision& cpu_matmul_precision() {
  if (own_precision != nullptr) return *own_precision;
  static MatmulPrecision precision = MatmulPrecision::kFloat32;
  return precision;
}

CpuProducts default_products() { return {default_backend(), cpu_matmul_precision()}; }

int num_threads() { return omp_get_max_threads(); }

void set_num_threads(int threads) {
  // oneDNN plans for this number and waits forever for threads that OpenMP did not start.
  omp_set_dynamic(0);
  omp_set_num_threads(std::clamp(threads, 1, std::max(1, omp_get_thread_limit())));
}

}  // namespace steelyard::kernels
