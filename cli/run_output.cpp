#include "cli/run_output.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "cli/progress.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/kernels/backend.h"
#include "steelyard/qat/model/input_codes.h"
#include "steelyard/qat/model/range_check.h"

namespace steelyard::cli {
namespace {

constexpr std::size_t kLongestNoteBytes = 65536;

// "cuda:0"; if `auto` chose the CPU, also why.
std::string device_text(const Experiment& experiment, Device device) {
  std::string text = device_name(device);
  const bool fell_back = experiment.recipe().device == "auto" && device == Device{};
  if (fell_back) text += " (" + why_no_gpu() + ")";
  return text;
}

constexpr std::int64_t kBatchesOfRanges = 4;

// What may help against ranges that fit badly.
std::string advice_on_ranges(const QuantizeSpec& quantize) {
  if (quantize.algorithm == qat::Learning::kNothing) return "another observer may help";
  if (quantize.scale_lr) return "leaving out quantize.algorithm.scale_lr may help";
  return "a smaller train.optimizer.lr or more epochs may help";
}

// One line about the ranges that fit the training samples badly, or "".
std::string warning_of_ranges(Experiment& experiment) {
  if (!experiment.recipe().quantize) return "";
  const std::int64_t batches = std::min(
      kBatchesOfRanges, batches_per_epoch(experiment.train(), experiment.loader_options()));
  const auto doubtful = qat::doubtful_ranges(
      qat::measure_tensors(experiment.model(), batches, experiment.plain_batches(), 0));
  if (doubtful.empty()) return "";
  std::string text;
  for (const qat::DoubtfulRange& range : doubtful) {
    text += (text.empty() ? "" : "; ") + to_string(range);
  }
  return "warning: ranges that look wrong: " + text + " (" +
         advice_on_ranges(*experiment.recipe().quantize) + ": docs/reports.md)\n";
}

}  // namespace

std::string shown(const std::filesystem::path& path) {
  return printable(path.string(), kMaxPathBytes);
}

void require_writable(const std::string& option, const std::filesystem::path& file) {
  const std::filesystem::path folder = file.parent_path();
  if (!folder.empty() && !is_folder(folder)) {
    throw InputError(option + ": there is no folder " + shown(folder));
  }
  const AtomicFile writable(file);
}

std::string model_text(Experiment& experiment, Device device) {
  std::int64_t parameters = 0;
  std::int64_t trained = 0;
  for (const NamedParameter& p : distinct(experiment.model().named_parameters())) {
    parameters += p.variable.value().size();
    if (p.variable.requires_grad()) trained += p.variable.value().size();
  }
  std::string text = fmt::format(
      "{}: {} training, {} validation, {} test samples; {} parameters; {} thread{}, {}, on {}\n",
      experiment.recipe().name, experiment.train().size(), experiment.validation().size(),
      experiment.test().size(), parameters, kernels::num_threads(),
      kernels::num_threads() == 1 ? "" : "s", kernels::backend_name(kernels::default_backend()),
      device_text(experiment, device));
  if (trained < parameters) {
    text += fmt::format("{} of the parameters are trained (train.only)\n", trained);
  }
  if (experiment.plan())
    text += fmt::format("\n{}\n", qat::to_string(qat::grouped(*experiment.plan())));
  return text;
}

void print_note(const std::string& note) {
  std::fflush(stdout);
  fmt::print(stderr, "note: {}\n", printable(note, kLongestNoteBytes));
}

void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes) print_note(note);
}

void print_result(Run& run, const Metrics& final) {
  Experiment& experiment = run.experiment();
  std::string text = fmt::format("test loss {:.4f}", final.loss);
  if (const auto metric = main_metric(final)) text += "  " + metric_text(*metric);
  show(text + "\n" + warning_of_ranges(experiment) +
       fmt::format("memory of tensors: {:.1f} MiB\nrun folder: {}\n",
                   static_cast<double>(run.memory_bytes()) / (1 << 20), shown(run.folder())));
  print_input_codes(experiment);
}

void print_input_codes(Experiment& experiment) {
  if (experiment.input().dtype != DType::kU8) return;
  const auto note =
      qat::note_of_bytes_between_codes(experiment.model(), experiment.normalization());
  if (note) print_note(*note);
}

void print_exports(const RunResult& result) {
  for (const auto& path : result.exports) show(fmt::format("exported: {}\n", shown(path)));
  for (const std::string& note : result.notes) print_note(note);
}

}  // namespace steelyard::cli
