#include "steelyard/recipes/reports/data_report.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <unordered_map>

#include "steelyard/framework/data/parallel.h"
#include "steelyard/framework/data/targets.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using Origins = std::vector<SampleOrigin>;

// The samples of another source; what they are made of is noted where they are first read.
class NotedSamples : public SampleSource {
 public:
  explicit NotedSamples(std::shared_ptr<const SampleSource> source)
      : source_(std::move(source)), origins_(static_cast<std::size_t>(source_->size())) {}

  std::int64_t size() const override { return source_->size(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return source_->shape(); }
  std::string name(std::int64_t sample) const override { return source_->name(sample); }
  void read(std::int64_t sample, Rng* random, void* to) const override {
    SampleOrigin& origin = origins_[static_cast<std::size_t>(sample)];
    if (origin.digest.empty()) {
      origin = source_->read_with_origin(sample, to);
    } else {
      source_->read(sample, random, to);
    }
  }
  // Once every sample has been read.
  const Origins& origins() const { return origins_; }

 private:
  std::shared_ptr<const SampleSource> source_;
  mutable Origins origins_;  // each is written by the thread that reads the sample
};

std::string_view target_bytes(const Tensor& targets, std::int64_t sample) {
  const auto bytes = static_cast<std::size_t>(targets.bytes() / targets.dim(0));
  const auto* at =
      static_cast<const char*>(targets.raw()) + static_cast<std::size_t>(sample) * bytes;
  return {at, bytes};
}

// What two samples have in common that are the same. Numbers as targets belong to it: rows of a
// table that agree in a few rounded features are not the same.
std::string identity_of(const Dataset& dataset, const Origins& origins, std::int64_t sample) {
  std::string identity = origins[static_cast<std::size_t>(sample)].digest;
  const Tensor& targets = dataset.targets;
  const bool numbers = target_kind(targets, dataset.classes) == TargetKind::kValues;
  if (!numbers || !has_targets(dataset)) return identity;
  return identity + sha256_of(target_bytes(targets, sample));
}

void find_duplicates(const DatasetSplits& splits, const Origins& trained, const Origins& tested,
                     DataReport& report) {
  const auto train = samples_of(splits.train);
  const auto test = samples_of(splits.test);
  const Tensor& targets = splits.train.targets;
  std::unordered_map<std::string, std::int64_t> first;
  for (std::int64_t i = 0; i < train->size(); ++i) {
    const auto [at, added] = first.emplace(identity_of(splits.train, trained, i), i);
    if (added || target_bytes(targets, at->second) == target_bytes(targets, i)) continue;
    report.of_two_targets.push_back({train->name(at->second), train->name(i)});
  }
  for (std::int64_t i = 0; i < test->size(); ++i) {
    const auto found = first.find(identity_of(splits.test, tested, i));
    if (found == first.end()) continue;
    report.tested_and_trained.push_back({test->name(i), train->name(found->second)});
  }
}

// The sizes of images before transforms, together with those that the report has already.
void add_sizes(const Origins& origins, DataReport& report) {
  for (const SampleOrigin& origin : origins) {
    if (!origin.image_size) continue;
    if (!report.image_sizes) report.image_sizes = {*origin.image_size, *origin.image_size};
    auto& [smallest, largest] = *report.image_sizes;
    for (const std::size_t side : {0, 1}) {
      smallest[side] = std::min(smallest[side], (*origin.image_size)[side]);
      largest[side] = std::max(largest[side], (*origin.image_size)[side]);
    }
  }
}

// What is wrong with each sample, read as evaluation does it; empty: nothing.
std::vector<std::string> faults_of(const SampleSource& source) {
  std::vector<std::string> faults(static_cast<std::size_t>(source.size()));
  in_parallel(source.size(), [&](std::int64_t i) {
    std::string values(static_cast<std::size_t>(sample_bytes(source)), '\0');
    try {
      source.read(i, nullptr, values.data());
    } catch (const InputError& error) {
      faults[static_cast<std::size_t>(i)] = error.what();
    }
  });
  return faults;
}

// Appends the faults of the dataset's samples; gives the others.
Dataset without_faults(const Dataset& dataset, std::vector<std::string>& faults) {
  std::vector<std::int64_t> good;
  std::vector<std::string> of_samples = faults_of(*samples_of(dataset));
  for (std::size_t i = 0; i < of_samples.size(); ++i) {
    if (of_samples[i].empty()) {
      good.push_back(static_cast<std::int64_t>(i));
    } else {
      faults.push_back(std::move(of_samples[i]));
    }
  }
  return select_samples(dataset, good);
}

std::string numbers_text(const std::vector<float>& values) {
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(values.size(), kMost); ++i) {
    text += fmt::format("{}{:.5g}", i == 0 ? "" : ", ", values[i]);
  }
  return values.size() > kMost ? text + fmt::format(", ... ({} in all)", values.size()) : text;
}

std::string pairs_text(const std::vector<DataReport::Pair>& pairs, const std::string& word) {
  constexpr std::size_t kMost = 10;
  std::string text;
  for (std::size_t i = 0; i < std::min(pairs.size(), kMost); ++i) {
    text += fmt::format("  {} {} {}\n", pairs[i][0], word, pairs[i][1]);
  }
  return pairs.size() > kMost ? text + fmt::format("  ... {} more\n", pairs.size() - kMost) : text;
}

std::string classes_text(const DataReport& report) {
  constexpr std::size_t kMost = 100;
  const Dataset& train = report.splits.train;
  const std::vector<std::string>& names = train.names.classes;
  const bool tokens = target_kind(train.targets, train.classes) == TargetKind::kTokens;
  std::string text;
  std::size_t width = 5;
  const auto name = [&](std::size_t i) {
    return i < names.size() ? printable(names[i], 40) : std::to_string(i);
  };
  const std::size_t count = std::min(report.train_counts.size(), kMost);
  for (std::size_t i = 0; i < count; ++i) width = std::max(width, name(i).size());
  text += fmt::format("{:<{}}  {:>9}  {:>9}\n", tokens ? "token" : "class", width, "train", "test");
  for (std::size_t i = 0; i < count; ++i) {
    text += fmt::format("{:<{}}  {:>9}  {:>9}\n", name(i), width, report.train_counts[i],
                        i < report.test_counts.size() ? report.test_counts[i] : 0);
  }
  if (report.train_counts.size() > kMost) {
    text += fmt::format("... {} {} in all\n", report.train_counts.size(),
                        tokens ? "tokens" : "classes");
  }
  return text;
}

std::string columns_text(const std::vector<TableColumn>& columns) {
  std::string text;
  for (const TableColumn& column : columns) {
    text += "column " + printable(column.name, 60) + ": ";
    text += column.categories.empty() ? std::string("a number")
                                      : fmt::format("{} categories", column.categories.size());
    if (column.missing) text += fmt::format(", {:.5g} where it is missing", *column.missing);
    text += "\n";
  }
  return text;
}

// Throws InputError where a sample cannot be read.
DataReport described(const DatasetSplits& splits) {
  DataReport report{.splits = splits,
                    .train_counts = class_counts(splits.train),
                    .test_counts = class_counts(splits.test)};
  // One reading for all: decoding takes long.
  const auto train = std::make_shared<NotedSamples>(samples_of(splits.train));
  Dataset noted = splits.train;
  noted.inputs = Tensor();
  noted.source = train;
  const NotedSamples test(samples_of(splits.test));
  report.statistics = compute_normalization(noted);
  in_parallel(test.size(), [&](std::int64_t i) {
    std::string values(static_cast<std::size_t>(sample_bytes(test)), '\0');
    test.read(i, nullptr, values.data());
  });
  for (const auto* origins : {&train->origins(), &test.origins()}) add_sizes(*origins, report);
  find_duplicates(splits, train->origins(), test.origins(), report);
  return report;
}

std::string faults_text(const std::vector<std::string>& faults) {
  constexpr std::size_t kMost = 1000;
  if (faults.empty()) return "";
  std::string text =
      fmt::format("samples that cannot be read, and count nowhere here: {}\n", faults.size());
  for (std::size_t i = 0; i < std::min(faults.size(), kMost); ++i) text += "  " + faults[i] + "\n";
  return faults.size() > kMost ? text + fmt::format("  ... {} more\n", faults.size() - kMost)
                               : text;
}

}  // namespace

DataReport describe_data(const DatasetSplits& splits) {
  try {
    return described(splits);
  } catch (const InputError&) {  // of the first sample that cannot be read
    std::vector<std::string> faults;
    const DatasetSplits good{without_faults(splits.train, faults),
                             without_faults(splits.test, faults)};
    if (faults.empty()) throw;
    if (good.train.size() == 0) {
      throw InputError("no training sample can be read, the first: " + faults[0]);
    }
    DataReport report = described(good);
    report.faults = std::move(faults);
    return report;
  }
}

std::string to_string(const DataReport& report, std::int64_t validation) {
  const DatasetSplits& splits = report.splits;
  const auto samples = [](const Dataset& d) {
    return fmt::format("{} samples {} {}", d.size(), dtype_name(d.dtype()),
                       shape_string(d.sample_shape()));
  };
  std::string text = "train: " + samples(splits.train);
  if (validation >= splits.train.size()) {
    text += fmt::format(", too few for data.validation: {}", validation);
  } else if (validation > 0) {
    text += fmt::format(", {} of them for validation", validation);
  }
  text += "\ntest:  " + samples(splits.test) + "\n";
  if (report.image_sizes) {
    const auto& [smallest, largest] = *report.image_sizes;
    text += fmt::format("images before transforms: {} to {} pixels high, {} to {} wide\n",
                        smallest[0], largest[0], smallest[1], largest[1]);
  }
  text += fmt::format("mean: {}\nstd:  {}\n", numbers_text(report.statistics.mean),
                      numbers_text(report.statistics.stddev));
  text += columns_text(splits.train.names.columns);
  if (!report.train_counts.empty()) text += classes_text(report);
  text += fmt::format("test samples that are training samples too: {}\n",
                      report.tested_and_trained.size());
  text += pairs_text(report.tested_and_trained, "is");
  if (!report.of_two_targets.empty()) {
    text += fmt::format("training samples that are there before, with another target: {}\n",
                        report.of_two_targets.size());
    text += pairs_text(report.of_two_targets, "and");
  }
  return text + faults_text(report.faults);
}

}  // namespace steelyard
