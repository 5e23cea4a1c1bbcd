#include "steelyard/framework/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>

#include "steelyard/framework/data/parallel.h"
#include "steelyard/framework/data/streams.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/tensor/rng.h"
#include "steelyard/kernels/backend.h"

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

// Calls `visit` with the values of every sample from `begin` to `end`, in order.
template <typename T, typename Visit>
void visit_samples(const SampleSource& source, std::int64_t begin, std::int64_t end,
                   const Visit& visit) {
  std::vector<T> values(static_cast<std::size_t>(sample_values(source)));
  for (std::int64_t i = begin; i < end; ++i) {
    const auto* sample = static_cast<const T*>(source.in_memory(i));
    if (sample == nullptr) source.read(i, nullptr, values.data());
    visit(std::span<const T>(sample == nullptr ? values.data() : sample, values.size()));
  }
}

// Sum over the channel of (value - center)^power.
std::vector<double> channel_sums(const SampleSource& source, const std::vector<double>& center,
                                 int power) {
  const std::size_t channels = center.size();
  std::vector<double> sums(channels, 0.0);
  visit_samples<float>(source, 0, source.size(), [&](std::span<const float> values) {
    for (std::size_t i = 0; i < values.size(); i += channels) {
      for (std::size_t c = 0; c < channels; ++c) {
        const double d = static_cast<double>(values[i + c]) - center[c];
        sums[c] += power == 1 ? d : d * d;
      }
    }
  });
  return sums;
}

// Whether a channel holds one value only: its computed deviation is rounding error, not zero.
std::vector<bool> constant_channels(const SampleSource& source) {
  const auto channels = static_cast<std::size_t>(source.shape().back());
  std::vector<bool> constant(channels, true);
  std::vector<float> first;
  visit_samples<float>(source, 0, source.size(), [&](std::span<const float> values) {
    if (first.empty()) first.assign(values.begin(), values.begin() + std::ssize(constant));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] != first[i % channels]) constant[i % channels] = false;
    }
  });
  return constant;
}

Normalization normalization_of_floats(const SampleSource& source) {
  const auto channels = static_cast<std::size_t>(source.shape().back());
  const double count =
      static_cast<double>(source.size() * sample_values(source)) / static_cast<double>(channels);
  std::vector<double> mean = channel_sums(source, std::vector<double>(channels, 0.0), 1);
  for (double& m : mean) m /= count;
  const std::vector<double> squares = channel_sums(source, mean, 2);
  std::vector<bool> constant(channels, false);
  for (std::size_t c = 0; c < channels; ++c) {
    // Only rounding errors add up in a constant channel.
    if (squares[c] / count > 1e-10 * (1 + mean[c] * mean[c])) continue;
    constant = constant_channels(source);
    break;
  }
  Normalization result;
  for (std::size_t c = 0; c < channels; ++c) {
    const auto stddev = static_cast<float>(std::sqrt(squares[c] / count));
    result.mean.push_back(static_cast<float>(mean[c]));
    result.stddev.push_back(stddev > 0 && !constant[c] ? stddev : 1.0F);
  }
  return result;
}

using ByteCounts = std::array<std::int64_t, 256>;

// How often each channel has each value: exact, whatever the order, so that threads share the
// samples.
std::vector<ByteCounts> byte_counts(const SampleSource& source) {
  const auto channels = static_cast<std::size_t>(source.shape().back());
  std::vector<ByteCounts> counts(channels);
  std::mutex mutex;
  const std::int64_t parts = std::min<std::int64_t>(source.size(), kernels::num_threads());
  in_parallel(parts, [&](std::int64_t part) {
    std::vector<ByteCounts> own(channels);
    visit_samples<std::uint8_t>(source, source.size() * part / parts,
                                source.size() * (part + 1) / parts,
                                [&](std::span<const std::uint8_t> values) {
                                  for (std::size_t i = 0; i < values.size(); i += channels) {
                                    for (std::size_t c = 0; c < channels; ++c) {
                                      ++own[c][values[i + c]];
                                    }
                                  }
                                });
    const std::lock_guard lock(mutex);
    for (std::size_t c = 0; c < channels; ++c) {
      for (std::size_t v = 0; v < own[c].size(); ++v) counts[c][v] += own[c][v];
    }
  });
  return counts;
}

Normalization normalization_of_bytes(const SampleSource& source) {
  Normalization result;
  for (const ByteCounts& counts : byte_counts(source)) {
    double count = 0, sum = 0, squares = 0;
    const auto value = [](std::size_t v) { return static_cast<double>(v) / 255.0; };
    for (std::size_t v = 0; v < counts.size(); ++v) {
      count += static_cast<double>(counts[v]);
      sum += static_cast<double>(counts[v]) * value(v);
    }
    const double mean = sum / count;
    for (std::size_t v = 0; v < counts.size(); ++v) {
      squares += static_cast<double>(counts[v]) * (value(v) - mean) * (value(v) - mean);
    }
    const bool constant = std::count(counts.begin(), counts.end(), 0) == std::ssize(counts) - 1;
    result.mean.push_back(static_cast<float>(mean));
    result.stddev.push_back(constant ? 1.0F : static_cast<float>(std::sqrt(squares / count)));
  }
  return result;
}

// How many of `count` samples are to be of each class, by largest remainders.
std::vector<std::int64_t> shares_of_classes(const Dataset& dataset, std::int64_t count) {
  std::vector<std::int64_t> shares = class_counts(dataset), remainders;
  std::int64_t left = count;
  for (std::int64_t& share : shares) {
    remainders.push_back(share * count % dataset.size());
    share = share * count / dataset.size();
    left -= share;
  }
  std::vector<std::size_t> classes(shares.size());
  std::iota(classes.begin(), classes.end(), std::size_t{0});
  std::stable_sort(classes.begin(), classes.end(),
                   [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
  for (std::int64_t i = 0; i < left; ++i) ++shares[classes[static_cast<std::size_t>(i)]];
  return shares;
}

// Moves the first samples of each class in `order` to its front: as many as its share.
void put_shares_first(const Dataset& dataset, std::int64_t count,
                      std::vector<std::int64_t>& order) {
  require_strata(dataset);
  const auto labels = dataset.targets.span<std::int64_t>();
  std::vector<std::int64_t> left = shares_of_classes(dataset, count), aside, others;
  for (const std::int64_t sample : order) {
    std::int64_t& of_class = left[static_cast<std::size_t>(labels[sample])];
    (of_class-- > 0 ? aside : others).push_back(sample);
  }
  std::copy(others.begin(), others.end(), std::copy(aside.begin(), aside.end(), order.begin()));
}

// {the others, `count` samples} of a permutation of that stream; both keep the original order.
std::pair<Dataset, Dataset> split_samples(const Dataset& dataset, std::int64_t count,
                                          std::uint64_t seed, std::uint64_t stream,
                                          bool stratified) {
  std::vector<std::int64_t> order = random_permutation(dataset.size(), seed, stream);
  if (stratified) put_shares_first(dataset, count, order);
  std::sort(order.begin(), order.begin() + count);
  std::sort(order.begin() + count, order.end());
  const std::span<const std::int64_t> all(order);
  const auto first = static_cast<std::size_t>(count);
  return {select_samples(dataset, all.subspan(first)), select_samples(dataset, all.first(first))};
}

}  // namespace

std::string sample_form_text(DType dtype, const Shape& sample, const DatasetNames& names) {
  if (names.inputs.empty()) return std::string(dtype_name(dtype)) + " " + shape_string(sample);
  std::string text;
  for (const NamedInput& input : names.inputs) {
    text += (text.empty() ? "" : ", ") + printable(input.name) + " " + shape_string(input.shape);
  }
  return text;
}

std::int64_t Dataset::size() const {
  if (source) return source->size();
  return inputs.defined() ? inputs.dim(0) : 0;
}

DType Dataset::dtype() const { return source ? source->dtype() : inputs.dtype(); }

Shape Dataset::sample_shape() const {
  if (source) return source->shape();
  return {inputs.shape().begin() + 1, inputs.shape().end()};
}

std::int64_t Dataset::held_bytes() const {
  return (inputs.defined() ? inputs.bytes() : 0) + (targets.defined() ? targets.bytes() : 0);
}

void add_channel_dimension(Dataset& dataset) {
  if (dataset.size() == 0) return;
  Shape shape = dataset.sample_shape();
  if (shape.size() != 2) return;
  shape.push_back(1);
  if (dataset.source) {
    dataset.source = std::make_shared<ReshapedSamples>(dataset.source, shape);
  } else {
    shape.insert(shape.begin(), dataset.size());
    dataset.inputs = dataset.inputs.reshape(shape);
  }
}

std::shared_ptr<const SampleSource> samples_of(const Dataset& dataset) {
  if (dataset.source) return dataset.source;
  return std::make_shared<TensorSamples>(dataset.inputs);
}

Dataset load_samples(const Dataset& dataset) {
  if (!dataset.source) return dataset;
  const SampleSource& source = *dataset.source;
  Shape shape = source.shape();
  shape.insert(shape.begin(), source.size());
  Dataset loaded = dataset;
  loaded.source.reset();
  loaded.inputs = with_memory_for("inputs " + shape_string(shape),
                                  [&] { return Tensor::empty(shape, source.dtype()); });
  const auto bytes = static_cast<std::size_t>(sample_bytes(source));
  in_parallel(source.size(), [&](std::int64_t i) {
    source.read(i, nullptr,
                static_cast<std::byte*>(loaded.inputs.raw()) + static_cast<std::size_t>(i) * bytes);
  });
  return loaded;
}

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

void require_finite_samples(const Dataset& dataset) {
  if (!dataset.source || dataset.dtype() != DType::kF32) return;
  const SampleSource& source = *dataset.source;
  in_parallel(source.size(), [&](std::int64_t i) {
    if (source.in_memory(i) != nullptr) return;
    std::vector<float> sample(static_cast<std::size_t>(sample_values(source)));
    source.read(i, nullptr, sample.data());
  });
}

Dataset select_samples(const Dataset& dataset, std::span<const std::int64_t> indices) {
  for (const std::int64_t i : indices) {
    if (i < 0 || i >= dataset.size()) {
      throw std::out_of_range("[select_samples] sample " + std::to_string(i) + " of " +
                              std::to_string(dataset.size()));
    }
  }
  Dataset selected{{},
                   select_rows(dataset.targets, indices),
                   dataset.classes,
                   {},
                   dataset.names,
                   dataset.target_normalization};
  if (dataset.source) {
    selected.source = std::make_shared<SelectedSamples>(
        dataset.source, std::vector<std::int64_t>(indices.begin(), indices.end()));
  } else {
    selected.inputs = select_rows(dataset.inputs, indices);
  }
  return selected;
}

Dataset spread_samples(const Dataset& dataset, std::int64_t count) {
  const std::int64_t size = dataset.size();
  if (count < 0) {
    throw std::invalid_argument("[spread_samples] expected a count of 0 or more, got " +
                                std::to_string(count));
  }
  if (count >= size) return dataset;
  std::vector<std::int64_t> indices;
  for (std::int64_t i = 0; i < count; ++i) indices.push_back(i * size / count);
  Dataset named = dataset;
  named.source = samples_of(dataset);
  return select_samples(named, indices);
}

std::pair<Dataset, Dataset> split_validation(const Dataset& dataset, std::int64_t count,
                                             std::uint64_t seed, bool stratified) {
  if (count < 0 || count >= dataset.size()) {
    throw InputError("[split_validation] expected 0 <= count < " + std::to_string(dataset.size()) +
                     ", got " + std::to_string(count));
  }
  return split_samples(dataset, count, seed, kValidationStream, stratified);
}

std::pair<Dataset, Dataset> split_test(const Dataset& dataset, std::int64_t count,
                                       std::uint64_t seed, bool stratified) {
  if (dataset.size() < 2) {
    throw InputError("a single sample cannot be divided into a training and a test set");
  }
  if (count <= 0 || count >= dataset.size()) {
    throw InputError("expected a test set of 1 to " + std::to_string(dataset.size() - 1) +
                     " of the " + std::to_string(dataset.size()) + " samples, got " +
                     std::to_string(count));
  }
  return split_samples(dataset, count, seed, kTestStream, stratified);
}

void require_strata(const Dataset& dataset) {
  const TargetKind kind = target_kind(dataset.targets, dataset.classes);
  if (kind == TargetKind::kClass) return;
  throw InputError("data.stratified: expected a class for each sample, the targets are " +
                   (kind == TargetKind::kValues ? "numbers" : std::string(word_of(kind))));
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
  const bool held = dataset.inputs.defined() && dataset.inputs.rank() >= 2;
  const bool read = dataset.source && !dataset.source->shape().empty();
  if (!(held || read) || dataset.size() == 0) {
    throw std::invalid_argument("[compute_normalization] expected inputs with channels");
  }
  require_input_dtype(dataset, "dataset");
  const std::shared_ptr<const SampleSource> source = samples_of(dataset);
  if (source->dtype() == DType::kU8) return normalization_of_bytes(*source);
  Normalization normalization = normalization_of_floats(*source);
  const auto is_finite = [](float mean) { return std::isfinite(mean); };
  if (!std::all_of(normalization.mean.begin(), normalization.mean.end(), is_finite)) {
    if (held) require_finite(dataset.inputs, "[compute_normalization] inputs");
    throw InputError("[compute_normalization] inputs: expected finite values");
  }
  return normalization;
}

Normalization compute_target_normalization(const Dataset& dataset) {
  const Tensor& targets = dataset.targets;
  if (!targets.defined() || targets.dtype() != DType::kF32 || targets.rank() < 2 ||
      targets.size() == 0) {
    throw std::invalid_argument("[compute_target_normalization] expected targets f32 [N, columns]");
  }
  return normalization_of_floats(TensorSamples(targets));
}

void normalize_targets(Dataset& dataset, const Normalization& normalization) {
  if (normalization.mean.empty() || dataset.size() == 0) return;
  const Tensor& targets = dataset.targets;
  const auto columns = std::ssize(normalization.mean);
  if (targets.dtype() != DType::kF32 || targets.rank() < 2 || targets.dim(-1) != columns) {
    throw InputError("targets: expected f32 [N, " + std::to_string(columns) + "], got " +
                     std::string(dtype_name(targets.dtype())) + " " +
                     shape_string(targets.shape()));
  }
  dataset.targets = normalized(targets, normalization);
  dataset.target_normalization = normalization;
}

}  // namespace steelyard
