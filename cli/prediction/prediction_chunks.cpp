#include "cli/prediction/prediction_chunks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/framework/data/dataset.h"
#include "steelyard/framework/data/parallel.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"

namespace steelyard::cli {
namespace {

std::size_t row_bytes(const Tensor& rows) {
  return static_cast<std::size_t>(rows.bytes() / std::max<std::int64_t>(rows.dim(0), 1));
}

std::byte* row_at(const Tensor& rows, std::int64_t row) {
  return static_cast<std::byte*>(rows.raw()) + static_cast<std::size_t>(row) * row_bytes(rows);
}

Tensor rows_between(const Tensor& rows, std::int64_t first, std::int64_t count) {
  Shape shape = rows.shape();
  shape[0] = count;
  Tensor part = Tensor::empty(shape, rows.dtype());
  if (count > 0) {
    std::memcpy(part.raw(), row_at(rows, first), static_cast<std::size_t>(part.bytes()));
  }
  return part;
}

// The rows whose fault, one for each, is "".
Tensor good_rows(const Tensor& rows, const std::vector<std::string>& faults) {
  const auto good = std::count(faults.begin(), faults.end(), "");
  if (good == std::ssize(faults)) return rows;
  const Tensor kept = rows_between(rows, 0, good);
  std::int64_t to = 0;
  for (std::int64_t from = 0; from < std::ssize(faults); ++from) {
    if (!faults[static_cast<std::size_t>(from)].empty()) continue;
    std::memcpy(row_at(kept, to++), row_at(rows, from), row_bytes(rows));
  }
  return kept;
}

// Gives the samples without a fault those of their rows.
void add_faults(std::vector<std::string>& faults, std::vector<std::string> of_rows) {
  auto next = of_rows.begin();
  for (std::string& fault : faults) {
    if (fault.empty()) fault = std::move(*next++);
  }
}

// The message of what a batch throws that one of its samples may be to blame for; else rethrows.
template <typename F>
std::string fault_of(const F& f) {
  try {
    f();
    return "";
  } catch (const std::out_of_range& error) {
    return error.what();
  } catch (const deploy::OnnxFileError&) {
    throw;  // of the model, not of a sample
  } catch (const InputError& error) {
    return error.what();
  }
}

// Runs rows [first, first + count) of the inputs, and where that fails each half of them.
class Bisection {
 public:
  Bisection(const Tensor& inputs, const BatchFunction& run)
      : inputs_(inputs), run_(run), faults_(static_cast<std::size_t>(inputs.dim(0))) {}

  void run(std::int64_t first, std::int64_t count) {
    Tensor rows;
    const bool all = count == inputs_.dim(0);
    const std::string fault =
        fault_of([&] { rows = run_(all ? inputs_ : rows_between(inputs_, first, count)); });
    if (fault.empty()) {
      keep(rows, first);
    } else if (count == 1) {
      faults_[static_cast<std::size_t>(first)] = fault;
    } else {
      run(first, count / 2);
      run(first + count / 2, count - count / 2);
    }
  }

  // The outputs of all inputs; those of an input with a fault mean nothing. Undefined where every
  // input has one.
  const Tensor& outputs() const { return outputs_; }
  const std::vector<std::string>& faults() const { return faults_; }

 private:
  void keep(const Tensor& rows, std::int64_t first) {
    if (rows.dim(0) == inputs_.dim(0)) {
      outputs_ = rows;
      return;
    }
    if (!outputs_.defined()) {
      Shape shape = rows.shape();
      shape[0] = inputs_.dim(0);
      outputs_ = Tensor::zeros(shape, rows.dtype());
    }
    std::memcpy(row_at(outputs_, first), rows.raw(), static_cast<std::size_t>(rows.bytes()));
  }

  const Tensor& inputs_;
  const BatchFunction& run_;
  Tensor outputs_;
  std::vector<std::string> faults_;
};

// The rows that `chosen` gives of the rows that were run, with the faults of those that could not
// be.
template <typename Chosen>
SampleChunk run_rows(const SampleChunk& inputs, const BatchFunction& run, Chosen chosen) {
  SampleChunk chunk{inputs.faults};
  if (!inputs.has_rows()) return chunk;
  Bisection parts(inputs.rows, run);
  parts.run(0, inputs.rows.dim(0));
  if (const Tensor rows = chosen(parts); rows.defined())
    chunk.rows = good_rows(rows, parts.faults());
  add_faults(chunk.faults, parts.faults());
  return chunk;
}

}  // namespace

SampleChunk read_chunk(const SampleSource& source, std::int64_t first, std::int64_t end) {
  SampleChunk chunk;
  chunk.faults.resize(static_cast<std::size_t>(end - first));
  Shape shape = source.shape();
  shape.insert(shape.begin(), end - first);
  const Tensor rows = with_memory_for("inputs " + shape_string(shape),
                                      [&] { return Tensor::empty(shape, source.dtype()); });
  in_parallel(end - first, [&](std::int64_t i) {
    chunk.faults[static_cast<std::size_t>(i)] = fault_of([&] {
      source.read(first + i, nullptr, row_at(rows, i));
      // Not every source looks at its floats.
      if (source.dtype() == DType::kF32) require_finite(rows_between(rows, i, 1), "inputs");
    });
  });
  chunk.rows = good_rows(rows, chunk.faults);
  return chunk;
}

SampleChunk run_on_chunk(const SampleChunk& inputs, const BatchFunction& run) {
  return run_rows(inputs, run, [](const Bisection& parts) { return parts.outputs(); });
}

SampleChunk accepted_by(const SampleChunk& inputs, const BatchFunction& run) {
  return run_rows(inputs, run, [&](const Bisection&) { return inputs.rows; });
}

SampleChunk finite_rows(SampleChunk outputs) {
  if (!outputs.has_rows()) return outputs;
  std::vector<std::string> faults;
  const std::size_t width = row_bytes(outputs.rows) / sizeof(float);
  for (std::int64_t row = 0; row < outputs.rows.dim(0); ++row) {
    const auto own =
        outputs.rows.span<float>().subspan(static_cast<std::size_t>(row) * width, width);
    const auto bad =
        std::find_if(own.begin(), own.end(), [](float v) { return !std::isfinite(v); });
    faults.push_back(bad == own.end() ? "" : fmt::format("an output of the model is {}", *bad));
  }
  outputs.rows = good_rows(outputs.rows, faults);
  add_faults(outputs.faults, std::move(faults));
  return outputs;
}

}  // namespace steelyard::cli
