#include "steelyard/recipes/runs/data_notes.h"

#include <algorithm>
#include <cstring>

#include "steelyard/framework/data/sample_source.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/recipes/models/models.h"

namespace steelyard {
namespace {

std::string channels_text(const Shape& sample, const char* read_as, const char* advice) {
  return "samples " + shape_string(sample) + " are read as " + read_as + ", with " +
         std::to_string(sample.back()) +
         " channels; if the channels come first, store them last: " + advice + " in NumPy";
}

std::optional<std::string> note_of_channels(const Shape& sample) {
  if (sample.size() == 2) {
    constexpr std::int64_t kMostChannels = 16, kLonger = 16;  // of what looks like a signal
    if (sample[0] > kMostChannels || sample[1] <= kLonger * sample[0]) return std::nullopt;
    return channels_text(sample, "[length, channels]", "sequences.transpose(0, 2, 1)");
  }
  constexpr std::int64_t kMostColours = 4;
  if (sample.size() != 3 || sample[2] <= kMostColours) return std::nullopt;
  // One row of many channels is a signal, unless it is square beyond that.
  const bool first = sample[0] == 3 || (sample[0] == 1 && sample[1] == sample[2]);
  if (!first) return std::nullopt;
  return channels_text(sample, "[height, width, channels]", "images.transpose(0, 2, 3, 1)");
}

// Training on one class ends with a loss of 0 and a top-1 of 100 % and has learned nothing; labels
// that count from 1 leave an output that is no class.
std::optional<std::string> note_of_labels(const Dataset& train) {
  if (target_kind(train.targets, train.classes) != TargetKind::kClass) return std::nullopt;
  const auto labels = train.targets.span<std::int64_t>();
  if (labels.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(labels.begin(), labels.end());
  if (*least == *most) {
    return "all " + std::to_string(labels.size()) + " training samples have the label " +
           std::to_string(*least) + ": there is nothing to tell apart";
  }
  if (*least == 0 || !train.names.classes.empty()) return std::nullopt;
  return "no training sample has the label 0, the smallest is " + std::to_string(*least) +
         ": labels count from 0, so the model has outputs for classes that never come";
}

// Whether all values of all samples are the same; false where one cannot be read, which others say.
bool is_constant(const SampleSource& samples) {
  const auto size = static_cast<std::size_t>(sample_bytes(samples) / sample_values(samples));
  std::string values(static_cast<std::size_t>(sample_bytes(samples)), '\0'), first;
  for (std::int64_t i = 0; i < samples.size(); ++i) {
    try {
      samples.read(i, nullptr, values.data());
    } catch (const InputError&) {
      return false;
    }
    if (i == 0) first = values.substr(0, size);
    for (std::size_t at = 0; at < values.size(); at += size) {
      if (values.compare(at, size, first) != 0) return false;
    }
  }
  return !first.empty();
}

}  // namespace

std::vector<std::string> notes_of_samples(const Dataset& train, bool layout) {
  std::vector<std::string> notes;
  if (auto note = note_of_labels(train)) notes.push_back(std::move(*note));
  if (!layout) return notes;
  if (auto note = note_of_channels(train.sample_shape())) notes.push_back(std::move(*note));
  return notes;
}

std::optional<std::string> note_of_constant(const Dataset& train, const Normalization& statistics) {
  const std::vector<float>& spread = statistics.stddev;
  const bool may_be = std::all_of(spread.begin(), spread.end(), [](float s) { return s == 1; });
  if (spread.empty() || !may_be || !is_constant(*samples_of(train))) return std::nullopt;
  return "all values of all training samples are the same: inputs say nothing";
}

std::optional<std::string> note_of_images(const ModelSpec& model, const InputFormat& input) {
  const Shape& sample = input.sample;
  if (input.dtype != DType::kF32 || sample.size() != 3 || sample[2] != 1) return std::nullopt;
  if (model.file() || takes_images(model)) return std::nullopt;
  return "samples of floats " + shape_string({sample[0], sample[1]}) +
         " are read as images of one channel, with one mean and deviation for all values; a model "
         "with Conv1d, LSTM, GRU, Attention or a pool of sequences, or that begins with Linear, "
         "reads them as sequences [length, channels]";
}

}  // namespace steelyard
