#include "steelyard/c/context.h"

#include <new>

#include "steelyard/framework/tensor/cpus.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/matmul_precision_words.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/framework/train/divergence.h"
#include "steelyard/kernels/backend.h"

namespace steelyard::c {
namespace {

steelyard_status keep_message(steelyard_context& context, const char* function, const char* words,
                              steelyard_status status) noexcept {
  try {
    context.message = std::string(function) + ": " + words;
    context.text = context.message.c_str();
  } catch (...) {
    context.text = "out of memory";
  }
  return status;
}

}  // namespace

ContextSettings::ContextSettings(const steelyard_context& context)
    : previous_threads_(kernels::num_threads()), precision_(context.precision) {
  if (context.threads > 0) kernels::set_num_threads(context.threads);
}

ContextSettings::~ContextSettings() {
  if (kernels::num_threads() != previous_threads_) kernels::set_num_threads(previous_threads_);
}

steelyard_status status_of_exception(steelyard_context& context, const char* function) noexcept {
  const auto keep = [&](const std::exception& error, steelyard_status status) {
    return keep_message(context, function, error.what(), status);
  };
  try {
    throw;
  } catch (const InputError& error) {
    return keep(error, STEELYARD_INVALID_INPUT);
  } catch (const DeviceError& error) {
    return keep(error, STEELYARD_NO_DEVICE);
  } catch (const OutOfMemory& error) {
    return keep(error, STEELYARD_OUT_OF_MEMORY);
  } catch (const std::bad_alloc&) {
    return keep_message(context, function, "out of memory", STEELYARD_OUT_OF_MEMORY);
  } catch (const TrainingDiverged& error) {
    return keep(error, STEELYARD_NOT_FINITE);
  } catch (const std::invalid_argument& error) {
    return keep(error, STEELYARD_INVALID_ARGUMENT);
  } catch (const std::out_of_range& error) {
    return keep(error, STEELYARD_INVALID_ARGUMENT);
  } catch (const std::exception& error) {
    return keep(error, STEELYARD_FAILED);
  } catch (...) {
    return keep_message(context, function, "unknown error", STEELYARD_FAILED);
  }
}

void require_struct(const void* given, std::size_t struct_bytes, std::size_t known_bytes,
                    const char* name, const char* init) {
  if (struct_bytes < sizeof(std::size_t)) {
    throw std::invalid_argument(std::string("expected ") + name + " that " + init +
                                "() made, got one of " + std::to_string(struct_bytes) + " bytes");
  }
  const auto* bytes = static_cast<const unsigned char*>(given);
  for (std::size_t i = known_bytes; i < struct_bytes; ++i) {
    if (bytes[i] == 0) continue;
    throw std::invalid_argument(
        std::string("expected ") + name + " of at most " + std::to_string(known_bytes) +
        " bytes, got " + std::to_string(struct_bytes) +
        " of which later ones are set: the library is older than its header");
  }
}

bool flag(std::int32_t value, const char* name) {
  if (value == 0 || value == 1) return value == 1;
  throw std::invalid_argument(std::string("expected ") + name + " to be 0 or 1, got " +
                              std::to_string(value));
}

}  // namespace steelyard::c

using steelyard::c::call;

const char* steelyard_version() { return STEELYARD_VERSION; }

steelyard_status steelyard_context_create(steelyard_context** context) {
  if (context == nullptr) return STEELYARD_INVALID_ARGUMENT;
  *context = new (std::nothrow) steelyard_context;
  return *context == nullptr ? STEELYARD_OUT_OF_MEMORY : STEELYARD_OK;
}

void steelyard_context_destroy(steelyard_context* context) { delete context; }

const char* steelyard_context_message(const steelyard_context* context) {
  return context == nullptr ? "expected a context, got NULL" : context->text;
}

steelyard_status steelyard_context_set_threads(steelyard_context* context, int32_t threads) {
  return call(context, __func__, [&] {
    if (threads < 0 || threads > steelyard::kMostThreads) {
      throw std::invalid_argument("expected threads from 0 to " +
                                  std::to_string(steelyard::kMostThreads) + ", got " +
                                  std::to_string(threads));
    }
    context->threads = threads;
  });
}

steelyard_status steelyard_context_set_matmul_precision(steelyard_context* context,
                                                        int32_t precision) {
  return call(context, __func__, [&] {
    using steelyard::kernels::MatmulPrecision;
    context->precision = steelyard::c::enumerator(precision, MatmulPrecision::kBf16, "a precision");
  });
}
