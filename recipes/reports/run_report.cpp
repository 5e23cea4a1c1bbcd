#include "steelyard/recipes/reports/run_report.h"

#include <fmt/core.h>

#include <algorithm>

#include "steelyard/export/formats.h"
#include "steelyard/export/graph_file.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/qat/layers/form_table.h"
#include "steelyard/qat/model/named_quantizers.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/language/scalar.h"
#include "steelyard/recipes/reports/deployed_module.h"
#include "steelyard/recipes/reports/reported_tensor.h"
#include "steelyard/recipes/reports/run_summary.h"
#include "steelyard/recipes/reports/step_report.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/schema/derived_recipe.h"

namespace steelyard {
namespace {

constexpr std::int64_t kBins = 128;  // on each side of 0

bool is_written_by_runs(const std::string& extension) {
  const std::vector<deploy::ExportFormat>& formats = deploy::export_formats();
  return std::any_of(formats.begin(), formats.end(), [&](const deploy::ExportFormat& format) {
    return format.suffix == extension;
  });
}

// Quantized, or left in float by the plan.
bool is_layer(const Module& module, const Registries& registries) {
  const qat::QuantizedForm* form = qat::find_form(registries.own_forms, module);
  return dynamic_cast<const qat::QuantizedLayer*>(&module) != nullptr ||
         (form != nullptr && form->kind == qat::FormKind::kWeighted);
}

// What a checkpoint of a quantized run is called: its schedule may begin later.
std::string how_quantized(Module& model) {
  const auto quantizers = qat::named_quantizers(model);
  const auto on = std::count_if(quantizers.begin(), quantizers.end(),
                                [](auto& entry) { return entry.quantizer->quantizing(); });
  if (on == 0) return "not quantized yet, ";
  if (on < std::ssize(quantizers)) return "partly quantized, ";
  const bool final_widths = std::all_of(quantizers.begin(), quantizers.end(), [](auto& entry) {
    return entry.quantizer->scheme().bits == entry.quantizer->config().scheme.bits;
  });
  return final_widths ? "quantized in training, " : "not at the planned widths yet, ";
}

class Reporter {
 public:
  Reporter(const std::filesystem::path& folder, const Registries& registries,
           const ReportOptions& options)
      : folder_(folder),
        registries_(registries),
        options_(options),
        recipe_(recipe_of_run(folder, registries)) {}

  RunReport run() {
    report_.name = recipe_.name;
    report_.recipe = resolved_yaml(recipe_);
    report_.quantized = recipe_.quantize.has_value();
    if (recipe_.exports.target) report_.target = word_of(*recipe_.exports.target);
    read_history();
    read_timing();
    read_summary();
    list_files();
    attempt(kMeasuredParts, [&] { loaded_ = load_run(folder_, options_.checkpoint, registries_); });
    for (const std::string& note : loaded_.notes) missing("the data of training", note);
    add_facts();
    if (loaded_.experiment) {
      if (const auto difference = difference_from_plan(*loaded_.experiment)) {
        missing("the quantization of the plan", *difference);
      }
      measure();
    }
    return std::move(report_);
  }

 private:
  // Runs `f`; what it throws becomes the reason why `what` is missing.
  template <typename F>
  bool attempt(const std::string& what, const F& f) {
    try {
      f();
      return true;
    } catch (const qat::NeverObserved& error) {
      missing(what, qat::never_observed_text(loaded_.experiment->model(), error));
      return false;
    } catch (const std::exception& error) {
      missing(what, error.what());
      return false;
    }
  }
  void missing(const std::string& what, const std::string& why) {
    report_.missing.push_back({what, why});
  }

  void read_timing() {
    const std::filesystem::path file = folder_ / run_files::kProfile;
    attempt("time of a step", [&] {
      if (path_exists(file)) report_.timing = load_step_timing(file);
    });
  }

  void read_history() {
    attempt("curves", [&] { report_.history = read_metrics(folder_ / "metrics.jsonl"); });
    if (!report_.history) return;
    if (const std::int64_t bad = report_.history->unreadable_lines; bad > 0) {
      missing("some metrics",
              fmt::format("metrics.jsonl: {} unreadable line{}", bad, bad == 1 ? "" : "s"));
    }
  }

  void read_summary() {
    attempt("summary of a finished run", [&] {
      const std::filesystem::path path = folder_ / "summary.json";
      const RunSummary summary = summary_in(path);
      const bool trained =
          report_.history && (!report_.history->steps.empty() || !report_.history->epochs.empty());
      if (summary.epochs != recipe_.train.trainer.epochs && (summary.epochs != 0 || trained)) {
        throw InputError(path.string() + ": is of a run of " + std::to_string(summary.epochs) +
                         " epochs, the recipe has " + std::to_string(recipe_.train.trainer.epochs));
      }
      summary_ = summary;
    });
  }

  void fact(const std::string& name, std::string value) {
    report_.facts.emplace_back(name, std::move(value));
  }

  std::string state() const {
    const auto& history = report_.history;
    const std::int64_t done =
        history && !history->epochs.empty() ? history->epochs.back().epoch : 0;
    const std::string logged =
        fmt::format("{} of {} epochs logged", done, recipe_.train.trainer.epochs);
    if (history && history->diverged) {
      const Divergence& end = *history->diverged;
      return (end.is_collapse() ? "collapsed, " : "diverged, ") + logged + ": " + end.what;
    }
    if (!summary_) return "interrupted or running, " + logged;
    if (summary_->epochs == 0) return "finished without training";
    return fmt::format("finished, {} of {} epochs", summary_->epochs, recipe_.train.trainer.epochs);
  }

  void add_facts() {
    fact("state", state());
    if (summary_) fact("training time", fmt::format("{:.0f} s", summary_->seconds));
    if (summary_ && !summary_->warning.empty()) fact("warning", summary_->warning);
    if (summary_ && summary_->best_epoch) fact("best epoch", std::to_string(*summary_->best_epoch));
    fact("seed", std::to_string(recipe_.seed));
    fact("data", recipe_.data.dataset);
    fact("model", recipe_.model.file()         ? *recipe_.model.file()
                  : recipe_.model.type.empty() ? "layers"
                                               : recipe_.model.type);
    fact("optimizer", fmt::format("{}, learning rate {}", word_of(recipe_.train.optimizer.type),
                                  format_number(recipe_.train.trainer.lr_schedule.base_lr)));
    if (recipe_.init_checkpoint) fact("starts from", *recipe_.init_checkpoint);
    if (recipe_.quantize) {
      fact(
          "quantization",
          fmt::format("{}, batch norm {}, profile {}", word_of(recipe_.quantize->algorithm),
                      word_of(recipe_.quantize->config.bn_fold), word_of(recipe_.exports.profile)));
    }
    if (!loaded_.experiment) return;
    fact("checkpoint shown", loaded_.checkpoint.filename().string());
    const Experiment& experiment = *loaded_.experiment;
    fact("samples", fmt::format("{} training, {} validation, {} test", experiment.train().size(),
                                experiment.validation().size(), experiment.test().size()));
    std::int64_t parameters = 0;
    for (const NamedParameter& p : distinct(loaded_.experiment->model().named_parameters())) {
      parameters += p.variable.value().size();
    }
    fact("parameters", std::to_string(parameters));
  }

  void list_files() {
    for (const std::filesystem::path& folder : {folder_, folder_ / "export"}) {
      std::error_code error;
      std::vector<std::filesystem::path> paths;
      for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
        const std::string extension = entry.path().extension().string();
        if (is_written_by_runs(extension) && entry.is_regular_file(error))
          paths.push_back(entry.path());
      }
      std::sort(paths.begin(), paths.end());
      for (const std::filesystem::path& path : paths) {
        const auto bytes = std::filesystem::file_size(path, error);
        if (!error) {
          report_.files.push_back(
              {path.lexically_relative(folder_).string(), static_cast<double>(bytes)});
        }
      }
    }
  }

  void measure() {
    if (report_.quantized) {
      attempt("layers", [&] { measure_layers(*loaded_.experiment, true); });
    } else if (!recipe_.model.is_language_model()) {  // whose layers have blocks, or other files
      attempt("layers", [&] { measure_float_layers(); });
    }
    attempt("accuracy", [&] { measure_accuracies(); });
    add_ideal_sizes();
  }

  // A float run is measured where a quantized one would have its quantizers.
  void measure_float_layers() {
    const std::vector<std::string> targets =
        quantizable_types(loaded_.experiment->model(), registries_.own_forms);
    if (targets.empty()) throw InputError("the model has no layer with weights");
    Experiment experiment(
        parse_recipe(
            measuring_recipe(recipe_, groups_of_width(recipe_, {targets}, 8, {}, registries_),
                             loaded_.checkpoint.string()),
            "recipe of the report", {}, registries_),
        registries_, InitialWeights::kRecipe, loaded_.experiment->network_text(),
        loaded_.experiment->known_data());
    experiment.normalize_as(loaded_.experiment->normalization());
    for (const qat::NamedQuantizer& entry : qat::named_quantizers(experiment.model())) {
      entry.quantizer->set_quantizing(false);
    }
    measure_layers(experiment, false);
  }

  void measure_layers(Experiment& experiment, bool quantized) {
    const std::int64_t batches = std::min(
        options_.batches, batches_per_epoch(experiment.train(), experiment.loader_options()));
    const auto inputs = [&, plain = experiment.plain_batches()](std::int64_t i) {
      const Tensor x = plain(i);
      report_.activation_samples += x.dim(0);
      return x;
    };
    const auto measured = qat::measure_tensors(experiment.model(), batches, inputs, kBins);
    if (quantized) report_.doubtful = qat::doubtful_ranges(measured);
    for (const NamedModule& entry : experiment.model().named_modules()) {
      if (is_layer(*entry.module, registries_)) add_layer(entry);
      for (const qat::MeasuredTensor& tensor : measured) {
        if (tensor.quantizer == entry.module) add_tensor(tensor, quantized);
      }
    }
    if (quantized) list_dynamic_inputs(experiment.model());
    const auto input =
        std::find_if(report_.layers.begin(), report_.layers.end(),
                     [](const ReportedLayer& layer) { return layer.name == "(input)"; });
    if (input != report_.layers.end()) std::rotate(report_.layers.begin(), input, input + 1);
  }

  // Dynamic activations: their range differs in every pass, so none can be shown.
  void list_dynamic_inputs(Module& model) {
    std::string layers, scheme;
    for (const NamedModule& entry : model.named_modules()) {
      const auto* layer = dynamic_cast<const qat::QuantizedLayer*>(entry.module);
      if (layer == nullptr || layer->dynamic_input() == nullptr) continue;
      layers += (layers.empty() ? "" : ", ") + entry.name;
      scheme = observers::to_string(*layer->dynamic_input());
    }
    if (layers.empty()) return;
    missing("ranges and errors of activations",
            "inputs of " + layers + " are " + scheme + ": each pass has scales of its own values");
  }

  void add_layer(const NamedModule& entry) {
    if (has_layer(entry.name)) return;  // a part of it, which is at the same path
    ReportedLayer layer{.name = entry.name, .type = entry.module->type_name()};
    if (layer.type.starts_with("Qat")) layer.type.erase(0, 3);
    for (const NamedParameter& p : entry.module->named_parameters()) {
      if (p.name.ends_with("weight")) layer.weights += p.variable.value().size();
    }
    const auto* quantized = dynamic_cast<const qat::QuantizedLayer*>(entry.module);
    if (quantized == nullptr || quantized->weight_quantizer() == nullptr) {
      for (const NamedParameter& p : entry.module->named_parameters()) {
        if (p.name != "weight") continue;
        const Tensor weight = p.variable.value().to(Device{});
        layer.weight = ReportedTensor{.histogram = qat::histogram_of(weight.span<float>(), kBins)};
      }
    }
    report_.layers.push_back(std::move(layer));
  }

  bool has_layer(const std::string& name) const {
    return std::any_of(report_.layers.begin(), report_.layers.end(),
                       [&](const ReportedLayer& layer) { return layer.name == name; });
  }

  // In its owner's row, or in one of its own: an input that arrives in float.
  void add_tensor(const qat::MeasuredTensor& tensor, bool quantized) {
    const std::string owner = qat::owner_of_quantizer(tensor.name);
    const ReportedTensor shown = reported(tensor, quantized && tensor.quantizer->quantizing());
    const auto found =
        std::find_if(report_.layers.begin(), report_.layers.end(),
                     [&](const ReportedLayer& layer) { return layer.name == owner; });
    ReportedLayer* row = found != report_.layers.end() ? &*found : nullptr;
    const bool own_input = tensor.name.ends_with(".input_quantizer");
    if (row == nullptr || own_input) {
      report_.layers.push_back({.name = own_input ? owner + " (input)" : owner});
      row = &report_.layers.back();
    }
    (tensor.weights_of != nullptr ? row->weight : row->activation) = shown;
  }

  void measure_accuracies() {
    Experiment& experiment = *loaded_.experiment;
    const Dataset test = spread_samples(experiment.test(), options_.samples);
    report_.test_samples = test.size();
    report_.test_set_samples = experiment.test().size();
    // The last model that is evaluated is the one whose classes are shown.
    const auto add = [&](const std::string& name, Module& model) {
      comm::Communicator alone;
      const Evaluation evaluation =
          evaluate_predictions(model, test, experiment.normalization(), experiment.loss(),
                               recipe_.data.loader.batch_size, alone);
      report_.accuracies.push_back({name, without_certain_ones(evaluation.metrics, test.classes)});
      report_.classes = report_classes(name, evaluation, test);
    };
    const std::string checkpoint = loaded_.checkpoint.filename().string();
    if (!report_.quantized) {
      add("float, " + checkpoint, experiment.model());
      return;
    }
    attempt("accuracy of the float model", [&] {
      Experiment base = float_model();
      const auto& first = recipe_.init_checkpoint;
      const std::string key = first ? "init.checkpoint" : "model." + recipe_.model.file_key();
      require_first_weights(base, key, first ? *first : *recipe_.model.file(),
                            first ? "checkpoint" : "file");
      add("float, " + key, base.model());
    });
    attempt("accuracy in training's arithmetic",
            [&] { add(how_quantized(experiment.model()) + checkpoint, experiment.model()); });
    attempt("accuracy of the integer model", [&] {
      deploy::Graph graph = deployed_graph(experiment);
      integer_bytes_ = deploy::parameter_bytes(graph);
      const bool exported = is_exported(graph, checkpoint);
      if (experiment.leaves_head()) graph = before_head(std::move(graph));
      Deployed deployed(std::move(graph), experiment.target_normalization());
      add(exported ? "integer, export/model.safetensors" : "integer, as export would write it",
          deployed);
    });
  }

  // What the run began with: the checkpoint, or the imported file, whose weights are nowhere else.
  Experiment float_model() const {
    const auto& checkpoint = recipe_.init_checkpoint;
    if (!checkpoint && !recipe_.model.file()) {
      throw InputError(
          "the recipe has no init.checkpoint and no model.onnx, model.gguf or model.huggingface");
    }
    if (!recipe_.init.skip.empty()) {
      throw InputError("init.skip leaves tensors of init.checkpoint out");
    }
    return {parse_recipe(measuring_recipe(recipe_, std::nullopt, checkpoint.value_or("")),
                         "recipe of the float model", {}, registries_),
            registries_, InitialWeights::kRecipe,
            checkpoint ? loaded_.experiment->network_text() : std::string(),
            loaded_.experiment->known_data()};
  }

  void require_first_weights(const Experiment& base, const std::string& key,
                             const std::string& file, const std::string& kind) const {
    const auto began_with = loaded_.sources.find(key);
    if (began_with == loaded_.sources.end() ||
        began_with->second == base.record().sources.at(key)) {
      return;
    }
    throw InputError(file + ": is not the " + kind + " that the run began with");
  }

  // Whether the run's export is this graph; if not, the page says so.
  bool is_exported(const deploy::Graph& graph, const std::string& checkpoint) {
    const std::filesystem::path path = export_path(folder_ / "export", "safetensors");
    return path_exists(path) && attempt("the exported model", [&] {
             if (deploy::holds_graph(path, graph)) return;
             throw InputError(path.string() + ": is not the export of " + checkpoint +
                              ", whose integer model is shown instead");
           });
  }

  // Adds the sizes of the weights of linear layers and convolutions, as floats and as codes.
  void add_ideal_sizes() {
    double floats = 0;
    double codes = 0;
    for (const ReportedLayer& layer : report_.layers) {
      floats += 4.0 * static_cast<double>(layer.weights);
      const int bits = layer.weight ? layer.weight->bits : 32;
      codes += static_cast<double>(layer.weights) * bits / 8;
    }
    if (floats == 0) return;
    report_.ideal.push_back({"weights as float32", floats});
    if (!report_.quantized) return;
    report_.ideal.push_back({"weights at the widths of their codes", codes});
    if (integer_bytes_) {
      report_.ideal.push_back(
          {"integer model: packed codes, scales and biases", static_cast<double>(*integer_bytes_)});
    }
  }

  std::filesystem::path folder_;
  const Registries& registries_;
  ReportOptions options_;
  Recipe recipe_;
  LoadedRun loaded_;
  std::optional<RunSummary> summary_;
  std::optional<std::int64_t> integer_bytes_;
  RunReport report_;
};

}  // namespace

RunReport make_report(const std::filesystem::path& run, const Registries& registries,
                      const ReportOptions& options) {
  return Reporter(run, registries, options).run();
}

std::vector<std::string> collapsed_epochs(const RunReport& report) {
  std::vector<std::string> epochs;
  if (!report.history) return epochs;
  for (const EpochMetrics& epoch : report.history->epochs) {
    if (!epoch.collapse.empty()) epochs.push_back(epoch.collapse);
  }
  return epochs;
}

}  // namespace steelyard
