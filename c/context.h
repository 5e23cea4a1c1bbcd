// What every function of the C face does around its work: the context's settings while it runs, and
// a status for whatever is thrown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <string>

#include "steelyard/c/steelyard_c_plans.h"
#include "steelyard/kernels/matmul_precision.h"
#include "steelyard/kernels/own_precision.h"

struct steelyard_context {
  int threads = 0;  // 0: the calling thread's own number
  steelyard::kernels::MatmulPrecision precision = steelyard::kernels::MatmulPrecision::kFloat32;
  std::string message = {};
  const char* text = "";  // of the message, or a constant where there is no memory for one
};

namespace steelyard::c {

// The context's settings, on the calling thread.
class ContextSettings {
 public:
  explicit ContextSettings(const steelyard_context& context);
  ~ContextSettings();
  ContextSettings(const ContextSettings&) = delete;
  ContextSettings& operator=(const ContextSettings&) = delete;

 private:
  int previous_threads_;
  kernels::OwnMatmulPrecision precision_;
};

// Of the exception that is being handled; keeps its words, which begin with the function's name.
steelyard_status status_of_exception(steelyard_context& context, const char* function) noexcept;

// Runs the work of a function of the C face.
template <typename Work>
steelyard_status call(steelyard_context* context, const char* function, const Work& work) noexcept {
  if (context == nullptr) return STEELYARD_INVALID_ARGUMENT;
  try {
    const ContextSettings settings(*context);
    work();
    return STEELYARD_OK;
  } catch (...) {
    return status_of_exception(*context, function);
  }
}

// Throws std::invalid_argument naming what is NULL.
template <typename T>
T& required(T* pointer, const char* name) {
  if (pointer != nullptr) return *pointer;
  throw std::invalid_argument(std::string("expected a pointer for ") + name + ", got NULL");
}

// A structure that an *_init function fills: at most as much as its caller's header knows.
template <typename T>
void init_struct(T* to, std::size_t struct_bytes, T defaults) noexcept {
  if (to == nullptr || struct_bytes < sizeof(std::size_t)) return;
  defaults.struct_bytes = struct_bytes;
  std::memset(static_cast<void*>(to), 0, struct_bytes);
  std::memcpy(static_cast<void*>(to), &defaults, std::min(struct_bytes, sizeof(T)));
}

// Throws std::invalid_argument where the size is none, or what this version does not know is set.
void require_struct(const void* given, std::size_t struct_bytes, std::size_t known_bytes,
                    const char* name, const char* init);

// The structure as this version has it: what an older caller's lacks is 0.
template <typename T>
T read_struct(const T* given, const char* name, const char* init) {
  const std::size_t bytes = required(given, name).struct_bytes;
  require_struct(given, bytes, sizeof(T), name, init);
  T own{};
  std::memcpy(static_cast<void*>(&own), given, std::min(bytes, sizeof(T)));
  return own;
}

// The value of an enumeration that has values from 0 to `last`. Throws std::invalid_argument.
template <typename E>
E enumerator(std::int32_t value, E last, const char* name) {
  if (value >= 0 && value <= static_cast<std::int32_t>(last)) return static_cast<E>(value);
  throw std::invalid_argument(std::string("expected ") + name + " from 0 to " +
                              std::to_string(static_cast<std::int32_t>(last)) + ", got " +
                              std::to_string(value));
}

// 0 or 1. Throws std::invalid_argument for others.
bool flag(std::int32_t value, const char* name);

}  // namespace steelyard::c
