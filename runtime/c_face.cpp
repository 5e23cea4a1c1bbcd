#include "steelyard/runtime/steelyard_runtime.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "steelyard/framework/tensor/cpus.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/storage.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/runtime/graph_file.h"
#include "steelyard/runtime/interpreter.h"
#include "steelyard/runtime/preprocessing.h"

using steelyard::deploy::Engine;
using steelyard::deploy::Graph;
using steelyard::deploy::Interpreter;

struct steelyard_model {
  explicit steelyard_model(Graph graph) : interpreter(std::move(graph), Engine::kLean) {}
  const Interpreter interpreter;
};

namespace {

using Status = steelyard_runtime_status;

// Where a caller wants to be told what was wrong.
struct Message {
  char* text;
  std::size_t bytes;

  Status of(Status status, std::string_view words) const noexcept {
    if (text != nullptr && bytes > 0) {
      const std::size_t count = std::min(words.size(), bytes - 1);
      std::memcpy(text, words.data(), count);
      text[count] = '\0';
    }
    return status;
  }
};

// f(), and what it threw as a status.
template <typename F>
Status guarded(const Message& message, const F& f) noexcept {
  try {
    f();
    return message.of(STEELYARD_RUNTIME_OK, "");
  } catch (const steelyard::InputError& error) {
    return message.of(STEELYARD_RUNTIME_INVALID_MODEL, error.what());
  } catch (const std::bad_alloc&) {
    return message.of(STEELYARD_RUNTIME_OUT_OF_MEMORY, "out of memory");
  } catch (const steelyard::OutOfMemory& error) {
    return message.of(STEELYARD_RUNTIME_OUT_OF_MEMORY, error.what());
  } catch (const std::invalid_argument& error) {
    return message.of(STEELYARD_RUNTIME_INVALID_ARGUMENT, error.what());
  } catch (const std::out_of_range& error) {  // among the inputs: an index of no row of a table
    return message.of(STEELYARD_RUNTIME_INVALID_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return message.of(STEELYARD_RUNTIME_FAILED, error.what());
  } catch (...) {
    return message.of(STEELYARD_RUNTIME_FAILED, "unknown error");
  }
}

[[noreturn]] void refuse(const std::string& expected) {
  throw std::invalid_argument("[runtime] expected " + expected);
}
void require(bool holds, const char* what) {
  if (!holds) refuse(what);
}

steelyard_sample sample_of(const steelyard::deploy::Value& value, steelyard::DType dtype) {
  require(value.shape.size() <= STEELYARD_RUNTIME_MAX_RANK, "a sample of at most 8 dimensions");
  steelyard_sample sample{};
  sample.name = value.name.c_str();
  sample.dtype = dtype == steelyard::DType::kU8 ? STEELYARD_RUNTIME_U8 : STEELYARD_RUNTIME_F32;
  sample.rank = static_cast<std::int32_t>(value.shape.size());
  std::copy(value.shape.begin(), value.shape.end(), sample.shape);
  sample.elements = steelyard::shape_size(value.shape);
  return sample;
}

// Throws unless that many samples of the shape take the bytes that a caller gives.
void require_bytes(std::int64_t samples, const steelyard::Shape& sample, steelyard::DType dtype,
                   std::size_t bytes, const char* what) {
  std::int64_t expected = 0;
  const bool fits =
      !__builtin_mul_overflow(samples, steelyard::shape_size(sample), &expected) &&
      !__builtin_mul_overflow(expected, dtype == steelyard::DType::kU8 ? 1 : 4, &expected);
  if (fits && std::cmp_equal(bytes, expected)) return;
  refuse((fits ? std::to_string(expected) : "more than 2^63") + " bytes of " + what + " for " +
         std::to_string(samples) + " samples, got " + std::to_string(bytes));
}

// f() on what a caller passed: what is wrong with that is no matter of the model.
template <typename F>
auto of_argument(const F& f) {
  try {
    return f();
  } catch (const steelyard::InputError& error) {
    throw std::invalid_argument(std::string("[runtime] ") + error.what());
  }
}

// Bytes between rows that no image has: products with its numbers of rows fit 64 bits.
constexpr std::size_t kMostRowBytes = std::size_t{1} << 31;

// The image of rows that may have gaps between them, without transparency.
steelyard::Image image_of(const std::uint8_t* pixels, std::int64_t height, std::int64_t width,
                          std::int32_t channels, std::size_t row_bytes) {
  require(channels == 1 || channels == 3 || channels == 4, "1, 3 or 4 channels");
  steelyard::require_image_size(width, height);
  const auto row = static_cast<std::size_t>(width * channels);
  if (row_bytes < row || row_bytes > kMostRowBytes) {
    refuse(std::to_string(row) + " to " + std::to_string(kMostRowBytes) + " bytes in a row, got " +
           std::to_string(row_bytes));
  }
  const std::int64_t kept = std::min(channels, 3);
  steelyard::Image image{height, width, kept, {}};
  image.pixels.resize(static_cast<std::size_t>(height * width * kept));
  std::uint8_t* to = image.pixels.data();
  for (std::int64_t y = 0; y < height; ++y) {
    const std::uint8_t* from = pixels + static_cast<std::size_t>(y) * row_bytes;
    if (kept == channels) {
      to = std::copy_n(from, row, to);
    } else {
      for (std::int64_t x = 0; x < width; ++x) to = std::copy_n(from + x * channels, kept, to);
    }
  }
  return image;
}

// Throws unless the caller has room for exactly that sample.
void copy_sample(const steelyard::Tensor& sample, void* to, std::size_t bytes) {
  if (std::cmp_not_equal(bytes, sample.bytes())) {
    refuse(std::to_string(sample.bytes()) + " bytes for the sample, got " + std::to_string(bytes));
  }
  std::memcpy(to, sample.raw(), bytes);
}

const std::vector<steelyard::TableColumn>& columns_of(const steelyard_model* model) {
  static const std::vector<steelyard::TableColumn> none;
  if (model == nullptr) return none;
  const auto& table = model->interpreter.graph().preprocessing.table;
  return table ? table->columns : none;
}

Status load(const Message& message, steelyard_model** model, const auto& graph) {
  if (model != nullptr) *model = nullptr;
  return guarded(message, [&] {
    require(model != nullptr, "a place for the model, got NULL");
    *model = new steelyard_model(graph());
  });
}

}  // namespace

const char* steelyard_runtime_version(void) { return STEELYARD_VERSION; }

Status steelyard_runtime_set_threads(std::int32_t threads) {
  return guarded({nullptr, 0}, [&] {
    if (threads < 0 || threads > steelyard::kMostThreads) {
      refuse("0 to " + std::to_string(steelyard::kMostThreads) + " threads, got " +
             std::to_string(threads));
    }
    steelyard::kernels::set_num_threads(threads > 0 ? threads : steelyard::usable_cpus());
  });
}

Status steelyard_model_load(const char* path, steelyard_model** model, char* message,
                            size_t message_bytes) {
  return load({message, message_bytes}, model, [&] {
    require(path != nullptr, "a path, got NULL");
    return steelyard::deploy::load_graph(path);
  });
}

Status steelyard_model_load_bytes(const void* bytes, size_t byte_count, steelyard_model** model,
                                  char* message, size_t message_bytes) {
  return load({message, message_bytes}, model, [&] {
    require(bytes != nullptr, "bytes, got NULL");
    return steelyard::deploy::graph_of_bytes({static_cast<const char*>(bytes), byte_count},
                                             "model");
  });
}

void steelyard_model_destroy(steelyard_model* model) {
  if (model == nullptr) return;
  delete model;
  steelyard::release_cached_memory();  // which would serve other models alone
}

Status steelyard_model_input(const steelyard_model* model, steelyard_sample* input) {
  return guarded({nullptr, 0}, [&] {
    require(model != nullptr && input != nullptr, "a model and a place, got NULL");
    const Graph& graph = model->interpreter.graph();
    *input = sample_of(graph.values[graph.input], graph.preprocessing.dtype);
  });
}

Status steelyard_model_output(const steelyard_model* model, steelyard_sample* output) {
  return guarded({nullptr, 0}, [&] {
    require(model != nullptr && output != nullptr, "a model and a place, got NULL");
    const Graph& graph = model->interpreter.graph();
    *output = sample_of(graph.values[graph.output], steelyard::DType::kF32);
  });
}

const char* steelyard_model_class_name(const steelyard_model* model, std::int64_t number) {
  if (model == nullptr || number < 0) return nullptr;
  const auto& names = model->interpreter.graph().class_names;
  return number < std::ssize(names) ? names[static_cast<std::size_t>(number)].c_str() : nullptr;
}

Status steelyard_model_run(const steelyard_model* model, std::int64_t samples, const void* input,
                           size_t input_bytes, float* output, size_t output_bytes, char* message,
                           size_t message_bytes) {
  return guarded({message, message_bytes}, [&] {
    require(model != nullptr, "a model, got NULL");
    if (samples < 0) refuse("0 samples or more, got " + std::to_string(samples));
    require(samples == 0 || (input != nullptr && output != nullptr),
            "inputs and outputs, got NULL");
    const Graph& graph = model->interpreter.graph();
    const auto& [in, out] =
        std::tie(graph.values[graph.input].shape, graph.values[graph.output].shape);
    const steelyard::DType dtype = graph.preprocessing.dtype;
    require_bytes(samples, in, dtype, input_bytes, "inputs");
    require_bytes(samples, out, steelyard::DType::kF32, output_bytes, "outputs");
    model->interpreter.run_raw(samples, input, output);
  });
}

Status steelyard_model_image(const steelyard_model* model, const uint8_t* pixels, int64_t height,
                             int64_t width, int32_t channels, size_t row_bytes, uint8_t* sample,
                             size_t sample_bytes, char* message, size_t message_bytes) {
  return guarded({message, message_bytes}, [&] {
    require(model != nullptr && pixels != nullptr && sample != nullptr,
            "a model, pixels and a place for the sample, got NULL");
    const steelyard::Tensor made = of_argument([&] {
      const steelyard::Image image = image_of(pixels, height, width, channels, row_bytes);
      return steelyard::deploy::image_samples(model->interpreter.graph(), {&image, 1});
    });
    copy_sample(made, sample, sample_bytes);
  });
}

std::int64_t steelyard_model_column_count(const steelyard_model* model) {
  return std::ssize(columns_of(model));
}

const char* steelyard_model_column_name(const steelyard_model* model, std::int64_t number) {
  const auto& columns = columns_of(model);
  const bool exists = number >= 0 && number < std::ssize(columns);
  return exists ? columns[static_cast<std::size_t>(number)].name.c_str() : nullptr;
}

Status steelyard_model_row(const steelyard_model* model, const char* const* fields,
                           size_t field_count, float* sample, size_t sample_bytes, char* message,
                           size_t message_bytes) {
  return guarded({message, message_bytes}, [&] {
    require(model != nullptr && fields != nullptr && sample != nullptr,
            "a model, fields and a place for the sample, got NULL");
    for (std::size_t i = 0; i < field_count; ++i) require(fields[i] != nullptr, "texts, got NULL");
    const std::vector<std::string_view> texts(fields, fields + field_count);
    copy_sample(of_argument([&] {
                  return steelyard::deploy::row_sample(model->interpreter.graph(), texts);
                }),
                sample, sample_bytes);
  });
}
