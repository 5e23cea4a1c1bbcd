#include "steelyard/framework/train/constant_outputs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

namespace steelyard {
namespace {

// Normalized targets have a mean near 0: then the simpler words are said.
constexpr double kLess = 0.999;

// ln(n!) of n from 0 to `most`.
std::vector<double> log_factorials(std::int64_t most) {
  std::vector<double> logs(static_cast<std::size_t>(most) + 1);
  for (std::size_t n = 1; n < logs.size(); ++n) {
    logs[n] = logs[n - 1] + std::log(static_cast<double>(n));
  }
  return logs;
}

struct TextForm {
  std::int64_t length = 0;
  std::int64_t repeats = 0;  // characters that are those before them: a blank is between
  auto operator<=>(const TextForm&) const = default;
};

std::map<TextForm, std::int64_t> forms_of(const Tensor& texts) {
  std::map<TextForm, std::int64_t> forms;
  const std::int64_t most = texts.dim(1);
  const auto all = texts.span<std::int64_t>();
  for (std::int64_t i = 0; i < texts.dim(0); ++i) {
    const auto text = all.subspan(static_cast<std::size_t>(i * most));
    TextForm form;
    for (std::size_t j = 0; j < static_cast<std::size_t>(most) && text[j] >= 0; ++j) {
      ++form.length;
      if (j > 0 && text[j] == text[j - 1]) ++form.repeats;
    }
    ++forms[form];
  }
  return forms;
}

// -ln p(text) / its length. With k frames that are no blanks, the characters' runs have
// C(k - 1, length - 1) ways and the blanks around them C(frames - k - repeats + length, length).
double loss_of_form(const TextForm& form, std::int64_t frames, double log_blank,
                    double log_character, const std::vector<double>& factorials) {
  const auto [length, repeats] = form;
  if (length == 0) return -static_cast<double>(frames) * log_blank;
  const auto log_choices = [&](std::int64_t n, std::int64_t k) {
    const auto of = [&](std::int64_t i) { return factorials[static_cast<std::size_t>(i)]; };
    return of(n) - of(k) - of(n - k);
  };
  std::vector<double> ways;
  for (std::int64_t k = length; k <= frames - repeats; ++k) {
    ways.push_back(
        log_choices(k - 1, length - 1) + log_choices(frames - k - repeats + length, length) +
        static_cast<double>(frames - k) * log_blank + static_cast<double>(k) * log_character);
  }
  if (ways.empty()) return std::numeric_limits<double>::infinity();
  const double largest = *std::max_element(ways.begin(), ways.end());
  double sum = 0;
  for (const double way : ways) sum += std::exp(way - largest);
  return -(largest + std::log(sum)) / static_cast<double>(length);
}

// The mean of `train` for every sample of `dataset`.
Tensor repeated_mean(const Dataset& train, const Dataset& dataset) {
  const Tensor targets = train.targets.to(Device{});
  const auto values = targets.span<float>();
  const auto width = static_cast<std::size_t>(targets.size() / targets.dim(0));
  std::vector<double> mean(width);
  for (std::size_t i = 0; i < values.size(); ++i) mean[i % width] += values[i];
  for (double& value : mean) value /= static_cast<double>(targets.dim(0));
  const Tensor repeated = Tensor::empty(dataset.targets.shape());
  const auto outputs = repeated.span<float>();
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    outputs[i] = static_cast<float>(mean[i % width]);
  }
  return repeated;
}

void try_mean(const Loss& loss, const Dataset& train, const Dataset& dataset,
              ConstantOutputs& best) {
  const Tensor& targets = dataset.targets;
  const bool alike = train.size() > 0 && targets.size() > 0 &&
                     Shape(train.targets.shape().begin() + 1, train.targets.shape().end()) ==
                         Shape(targets.shape().begin() + 1, targets.shape().end());
  if (!alike) return;
  const NoGradGuard no_grad;
  const Variable outputs(repeated_mean(train, dataset));
  const double found = compute_loss(loss, outputs, targets.to(Device{})).value().item();
  if (found < kLess * best.loss) best = {found, "outputs that are the mean of the targets"};
}

void try_blanks(const Loss& loss, const Dataset& dataset, ConstantOutputs& best) {
  constexpr int kParts = 40;
  const Tensor texts = dataset.targets.to(Device{});
  for (int i = 1; i < kParts; ++i) {
    const double blank = static_cast<double>(i) / kParts;
    const double found =
        ctc_of_constant_frames(texts, loss.frames, loss.characters, blank, loss.zero_infinity);
    if (found < kLess * best.loss) best = {found, "frames that are all the same"};
  }
}

}  // namespace

double ctc_of_constant_frames(const Tensor& texts, std::int64_t frames, std::int64_t characters,
                              double blank, bool zero_infinity) {
  const std::vector<double> factorials = log_factorials(frames + texts.dim(1));
  const double log_blank = std::log(blank);
  const double log_character = std::log((1 - blank) / static_cast<double>(characters - 1));
  double sum = 0;
  for (const auto& [form, count] : forms_of(texts)) {
    const double loss = loss_of_form(form, frames, log_blank, log_character, factorials);
    if (zero_infinity && std::isinf(loss)) continue;
    sum += static_cast<double>(count) * loss;
  }
  return sum / static_cast<double>(texts.dim(0));
}

ConstantOutputs constant_outputs(const Loss& loss, const Dataset& train, const Dataset& dataset) {
  if (dataset.size() == 0) return {};
  ConstantOutputs best{.loss = loss_of_zero_outputs(loss, dataset)};
  if (best.loss <= 0) return best;
  const LossInfo& info = loss_info(loss);
  if (info.targets == TargetKind::kValues && !info.of_zero_outputs) {
    try_mean(loss, train, dataset, best);
  } else if (loss.type == Loss::Type::kCtc) {
    try_blanks(loss, dataset, best);
  }
  return best;
}

}  // namespace steelyard
