#include "steelyard/framework/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "steelyard/framework/data/streams.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/rng.h"

namespace steelyard {
namespace {

// The coordinates of a flat offset.
Shape position_in(const Shape& shape, std::int64_t offset) {
  Shape position(shape.size());
  for (std::size_t i = shape.size(); i-- > 0; offset /= shape[i]) position[i] = offset % shape[i];
  return position;
}

Tensor select_rows(const Tensor& tensor, std::span<const std::int64_t> rows) {
  Shape shape = tensor.shape();
  shape[0] = static_cast<std::int64_t>(rows.size());
  Tensor out = Tensor::empty(std::move(shape), tensor.dtype());
  if (tensor.dim(0) == 0 || out.bytes() == 0) return out;
  const auto row_bytes = static_cast<std::size_t>(tensor.bytes() / tensor.dim(0));
  const auto* from = static_cast<const char*>(tensor.raw());
  auto* to = static_cast<char*>(out.raw());
  for (const std::int64_t row : rows) {
    std::memcpy(to, from + static_cast<std::size_t>(row) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

// Sum over the channel of (value - center)^power.
template <typename T>
std::vector<double> channel_sums(const Tensor& inputs, const std::vector<double>& center,
                                 double scale, int power) {
  const std::size_t channels = center.size();
  std::vector<double> sums(channels, 0.0);
  const auto values = inputs.span<T>();
  for (std::size_t i = 0; i < values.size(); i += channels) {
    for (std::size_t c = 0; c < channels; ++c) {
      const double d = static_cast<double>(values[i + c]) * scale - center[c];
      sums[c] += power == 1 ? d : d * d;
    }
  }
  return sums;
}

// Whether a channel holds one value only: its computed deviation is rounding error, not zero.
template <typename T>
bool is_constant(const Tensor& inputs, std::size_t channel) {
  const auto values = inputs.span<T>();
  const auto channels = static_cast<std::size_t>(inputs.dim(-1));
  for (std::size_t i = channel; i < values.size(); i += channels) {
    if (values[i] != values[channel]) return false;
  }
  return true;
}

template <typename T>
Normalization normalization_of(const Tensor& inputs, double scale) {
  const auto channels = static_cast<std::size_t>(inputs.dim(-1));
  const double count = static_cast<double>(inputs.size() / inputs.dim(-1));
  std::vector<double> mean = channel_sums<T>(inputs, std::vector<double>(channels, 0.0), scale, 1);
  for (double& m : mean) m /= count;
  const std::vector<double> squares = channel_sums<T>(inputs, mean, scale, 2);
  Normalization result;
  for (std::size_t c = 0; c < channels; ++c) {
    const auto stddev = static_cast<float>(std::sqrt(squares[c] / count));
    result.mean.push_back(static_cast<float>(mean[c]));
    result.stddev.push_back(stddev > 0 && !is_constant<T>(inputs, c) ? stddev : 1.0F);
  }
  return result;
}

}  // namespace

void require_finite(const Tensor& samples, const std::string& what) {
  if (samples.dtype() != DType::kF32) return;
  const auto values = samples.span<float>();
  const auto bad =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (bad == values.end()) return;
  Shape position = position_in(samples.shape(), bad - values.begin());
  const std::int64_t sample = position.front();
  position.erase(position.begin());
  throw InputError(what + ": expected finite values, got " + std::to_string(*bad) + " in sample " +
                   std::to_string(sample) +
                   (position.empty() ? "" : " at " + shape_string(position)));
}

void validate_dataset(const Dataset& dataset, const std::string& source) {
  const auto require = [&source](bool condition, const std::string& what) {
    if (!condition) throw InputError(source + ": " + what);
  };
  const Tensor& x = dataset.inputs;
  const Tensor& y = dataset.targets;
  require(x.defined() && y.defined(), "expected inputs and targets");
  require(x.dtype() == DType::kU8 || x.dtype() == DType::kF32,
          "expected inputs u8 or f32, got " + std::string(dtype_name(x.dtype())));
  require(x.rank() == 0 || x.dim(0) > 0,
          "expected 1 sample or more, got inputs " + shape_string(x.shape()));
  require((x.rank() == 2 || x.rank() == 4) && x.size() > 0,
          "expected inputs [N, features] or [N, H, W, C], got " + shape_string(x.shape()));
  require(y.rank() >= 1 && y.dim(0) == x.dim(0),
          "expected targets for " + std::to_string(x.dim(0)) + " samples, got shape " +
              shape_string(y.shape()));
  require_finite(x, source + ": inputs");
  if (dataset.classes == 0) {
    require(y.dtype() == DType::kF32 && y.size() > 0, "expected targets f32 for regression, got " +
                                                          std::string(dtype_name(y.dtype())) + " " +
                                                          shape_string(y.shape()));
    require_finite(y, source + ": targets");
    return;
  }
  require(y.dtype() == DType::kI64 && y.rank() == 1, "expected labels i64 [N], got " +
                                                         std::string(dtype_name(y.dtype())) + " " +
                                                         shape_string(y.shape()));
  const auto labels = y.span<std::int64_t>();
  for (std::size_t i = 0; i < labels.size(); ++i) {
    require(labels[i] >= 0 && labels[i] < dataset.classes,
            "expected labels in [0, " + std::to_string(dataset.classes) + "), got " +
                std::to_string(labels[i]) + " in sample " + std::to_string(i));
  }
}

Dataset select_samples(const Dataset& dataset, std::span<const std::int64_t> indices) {
  for (const std::int64_t i : indices) {
    if (i < 0 || i >= dataset.size()) {
      throw std::out_of_range("[select_samples] sample " + std::to_string(i) + " of " +
                              std::to_string(dataset.size()));
    }
  }
  return {select_rows(dataset.inputs, indices), select_rows(dataset.targets, indices),
          dataset.classes};
}

Dataset first_samples(const Dataset& dataset, std::int64_t count) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(count, dataset.size())));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return select_samples(dataset, indices);
}

std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, std::int64_t count,
                                             std::uint64_t seed) {
  if (count < 0 || count >= dataset.size()) {
    throw InputError("[split_validation] expected 0 <= count < " + std::to_string(dataset.size()) +
                     ", got " + std::to_string(count));
  }
  std::vector<std::int64_t> order = random_permutation(dataset.size(), seed, kValidationStream);
  std::sort(order.begin(), order.begin() + count);
  std::sort(order.begin() + count, order.end());
  const std::span<const std::int64_t> all(order);
  const auto first = static_cast<std::size_t>(count);
  return {select_samples(dataset, all.subspan(first)), select_samples(dataset, all.first(first))};
}

std::vector<std::int64_t> random_permutation(std::int64_t size, std::uint64_t seed,
                                             std::uint64_t stream) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  Rng rng(seed, stream);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  return order;
}

Normalization compute_normalization(const Dataset& dataset) {
  const Tensor& inputs = dataset.inputs;
  if (!inputs.defined() || inputs.rank() < 2 || inputs.size() == 0) {
    throw std::invalid_argument("[compute_normalization] expected inputs with channels");
  }
  return inputs.dtype() == DType::kU8 ? normalization_of<std::uint8_t>(inputs, 1.0 / 255.0)
                                      : normalization_of<float>(inputs, 1.0);
}

}  // namespace steelyard
