// Data without labels: what an experiment's float model gives takes the place of targets.
#include <algorithm>
#include <cmath>
#include <map>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/train/evaluate.h"
#include "steelyard/import/output_sources.h"
#include "steelyard/layers/identity.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/runs/experiment/experiment.h"

namespace steelyard {
namespace {

// For each value of a sample, which part of the outputs it is of: an output, or what one kind of
// module gives of an output that is joined of several (imports::output_sources()).
struct OutputGroups {
  std::vector<std::size_t> of_values;
  std::vector<double>
      shares;  // of each group in the loss: outputs have equal ones, and their parts

  std::size_t count() const { return shares.size(); }
};

OutputGroups groups_of(const std::vector<std::int64_t>& sizes,
                       const imports::OutputSources& sources) {
  OutputGroups groups;
  for (const std::int64_t size : sizes) {
    std::map<std::int32_t, std::size_t> own;
    for (std::int64_t i = 0; i < size; ++i) {
      const std::int32_t source =
          sources.of_values.empty() ? 0 : sources.of_values.at(groups.of_values.size());
      const auto at = own.try_emplace(source, groups.count() + own.size()).first;
      groups.of_values.push_back(at->second);
    }
    const auto parts = static_cast<double>(sizes.size() * own.size());
    groups.shares.insert(groups.shares.end(), own.size(), 1 / parts);
  }
  return groups;
}

// The mean over samples of each group's power.
std::vector<double> powers_of(const Tensor& outputs, const OutputGroups& groups) {
  const std::int64_t samples = outputs.dim(0), all = outputs.size() / samples;
  std::vector<double> powers(groups.count());
  for (std::int64_t i = 0; i < samples; ++i) {
    const float* row = outputs.data<float>() + i * all;
    for (std::int64_t j = 0; j < all; ++j) {
      powers[groups.of_values[static_cast<std::size_t>(j)]] +=
          static_cast<double>(row[j]) * static_cast<double>(row[j]);
    }
  }
  for (double& power : powers) power /= static_cast<double>(samples);
  return powers;
}

// The mean over rows of logits of the Kullback-Leibler divergence of equal chances from theirs.
double divergence_of_equal_chances(const Tensor& logits) {
  const std::int64_t classes = logits.dim(-1), rows = logits.size() / classes;
  double sum = 0;
  for (std::int64_t i = 0; i < rows; ++i) {
    const float* row = logits.data<float>() + i * classes;
    const double largest = static_cast<double>(*std::max_element(row, row + classes));
    double total = 0, weighted = 0;  // of exp(z) and z exp(z), z = logit - largest
    for (std::int64_t j = 0; j < classes; ++j) {
      const double z = static_cast<double>(row[j]) - largest;
      total += std::exp(z);
      weighted += z * std::exp(z);
    }
    sum += weighted / total - std::log(total) + std::log(static_cast<double>(classes));
  }
  return sum / static_cast<double>(rows);
}

// The scales with which groups of these powers have their shares of a loss, which is 1 for zeros.
Tensor scales_of(const OutputGroups& groups, const std::vector<double>& powers) {
  const auto all = static_cast<double>(groups.of_values.size());
  std::vector<float> scales;
  for (const std::size_t group : groups.of_values) {
    scales.push_back(static_cast<float>(std::sqrt(all * groups.shares[group] / powers.at(group))));
  }
  return Tensor::from(scales, {std::ssize(scales)});
}

}  // namespace

std::shared_ptr<Module> Experiment::float_start(const Registries& registries,
                                                const KnownTeacher& known) {
  std::shared_ptr<Module> model = make_float_model(registries);
  const std::string key = recipe_.init_checkpoint ? "init.checkpoint" : file_key();
  if (recipe_.init_checkpoint) {
    load_source(key, *recipe_.init_checkpoint, place("init", "checkpoint"), *model, recipe_.init);
  } else if (network_) {
    const std::string& file = *recipe_.model.file();
    const bool of_checkpoint = !is_folder(file) && kind_of(InputFile(file)) == kSafetensorsKind;
    const bool weights_later = !imported_weights_ && !of_checkpoint;
    if (weights_later) {
      ImportedModel imported =
          read_imported_model(recipe_.model, {input_.sample, input_.names.inputs});
      sources_[key] = imported.sha256;
      at_place(place_of_file(), [&] { load_into(*model, *imported.weights, file); });
    } else {
      load_imported_weights(*model);
    }
  } else {
    fail_at(place("data", "labels"),
            "data.labels: false: the float model's outputs are what is learned: expected its "
            "weights, model.onnx, model.gguf, model.huggingface or init.checkpoint");
  }
  const auto before = known.sources.find(key);
  if (before != known.sources.end() && sources_[key] != before->second) {
    fail_at(recipe_.init_checkpoint ? place("init", "checkpoint") : place_of_file(),
            key + ": the file is not the one that the run learns from (sha256 " + before->second +
                ", it has " + sources_[key] + ")");
  }
  return model;
}

std::vector<std::int64_t> Experiment::output_sizes() const {
  if (network_ && !network_->output_parts.empty()) {
    std::vector<std::int64_t> sizes;
    for (const imports::PartSpec& part : network_->output_parts) {
      sizes.push_back(shape_size(part.shape));
    }
    return sizes;
  }
  return {train_.size() > 0 ? train_.targets.size() / train_.size()
                            : test_.targets.size() / test_.size()};
}

KnownData Experiment::known_data() const {
  KnownData known{normalization(), target_normalization_, input_.names.classes};
  if (!recipe_.data.labels) {
    known.teacher = {sources_, output_units_, {train_.targets, validation_.targets, test_.targets}};
  }
  return known;
}

Tensor Experiment::deployed_outputs(const Tensor& outputs) const {
  const NoGradGuard no_grad;
  ForwardContext context;
  return as_deployed(std::make_shared<Identity>())->forward(Variable(outputs), context).value();
}

void Experiment::take_float_outputs(const Registries& registries, const KnownTeacher& known) {
  if (recipe_.data.labels) return;
  output_units_ = known.units;
  const bool any = train_.size() + validation_.size() + test_.size() > 0;
  if (any) {
    std::shared_ptr<Module> model;
    const std::array parts{&train_, &validation_, &test_};
    for (std::size_t i = 0; i < parts.size(); ++i) {
      Dataset& part = *parts[i];
      if (part.size() == 0) continue;
      const Tensor& before = known.outputs[i];
      if (before.defined() && before.dim(0) == part.size()) {
        part.targets = before;
        continue;
      }
      if (model == nullptr) model = float_start(registries, known);
      part.targets = outputs_of(*model, part, normalization(), loader_options_.batch_size);
      require_finite(part.targets, "the float model's outputs");
    }
  }
  if (!any || loss_.type != Loss::Type::kFidelity) return;
  const Tensor& outputs = train_.size() > 0 ? train_.targets : test_.targets;
  loss_.units.logits = leaves_head();
  if (loss_.units.logits) {
    if (output_units_.empty()) output_units_ = {divergence_of_equal_chances(outputs)};
    if (output_units_.at(0) <= 0)
      output_units_ = {1};  // chances that are always equal: as they are
    loss_.units.divergence = output_units_.at(0);
    return;
  }
  const std::vector<std::int64_t> sizes = output_sizes();
  OutputGroups groups = groups_of(sizes, {});
  // A run that began before outputs were told apart goes on as it began.
  if (network_ && output_units_.size() != groups.count()) {
    groups = groups_of(sizes, imports::output_sources(*network_));
  }
  if (output_units_.empty()) {
    output_units_ = powers_of(outputs, groups);
    for (std::size_t i = 0; i < groups.count(); ++i) {
      // What is always zero counts as it is.
      if (output_units_[i] <= 0) {
        output_units_[i] =
            static_cast<double>(std::count(groups.of_values.begin(), groups.of_values.end(), i));
      }
    }
  }
  loss_.units.scales = scales_of(groups, output_units_);
}

}  // namespace steelyard
