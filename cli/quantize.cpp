#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/interrupt.h"
#include "cli/progress.h"
#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/score.h"
#include "cli/verbs.h"
#include "cli/verify.h"
#include "steelyard/export/onnx/onnx_runtime.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/framework/train/metrics.h"
#include "steelyard/import/onnx/joined_file.h"
#include "steelyard/qat/quantizers/words.h"
#include "steelyard/recipes/runs/deployment.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/searches/quantization_search.h"
#include "steelyard/recipes/searches/search_state.h"
#include "steelyard/recipes/searches/state_steps.h"

namespace steelyard::cli {
namespace {

struct QuantizeArguments {
  FileAndData given;
  QuantizationSearch search;
  std::string bits = "w8a8";
  std::string range = "1";
  std::string out;
  std::string run_dir;
  std::string score;
  double score_loss = OwnScore().most_loss;
  std::string python;
  bool overwrite = false;
};

struct Widths {
  const char* word;
  int weights, activations;
  bool widens = false;
};
constexpr Widths kWidths[] = {
    {"w8a8", 8, 8}, {"w4a8", 4, 8}, {"w8a16", 8, 16}, {"mixed", 8, 8, true}};

// The profiles whose models have an ONNX file.
std::vector<std::string> onnx_profiles() {
  std::vector<std::string> words;
  for (const Word<qat::Profile>& word : qat::words_of(qat::Profile{})) {
    if (!qat::is_fixed_point(word.value)) words.emplace_back(word.word);
  }
  return words;
}

// An option's check: the problem, "" where there is none.
std::string is_no_profile_of_fixed_point(const std::string& word) {
  for (const Word<qat::Profile>& row : qat::words_of(qat::Profile{})) {
    if (row.word != word || !qat::is_fixed_point(row.value)) continue;
    return word +
           " has no ONNX files: steelyard train makes models of it, of a recipe with model.onnx "
           "and export.profile " +
           word + " (docs/microcontrollers.md)";
  }
  return "";
}

std::vector<std::string> words_of_widths() {
  std::vector<std::string> words;
  for (const Widths& widths : kWidths) words.emplace_back(widths.word);
  return words;
}

std::string decibels_text(double decibels) {
  return decibels >= kMostDecibels ? "exact" : fmt::format("{:.1f}", decibels);
}

std::string percent_text(const std::optional<double>& percent) {
  return percent ? fmt::format("{:.2f}", *percent) : "-";
}

// "SQNR 31.2 dB, 99.61 % of the decisions the same".
std::string fidelity_text(double sqnr_db, const std::optional<double>& agreement, bool boxes) {
  std::string text = "SQNR " + decibels_text(sqnr_db) + (sqnr_db >= kMostDecibels ? "" : " dB");
  if (agreement) {
    text += fmt::format(", {:.2f} % of the {} the same", *agreement, boxes ? "boxes" : "decisions");
  }
  return text;
}

// Refuses what would be lost; where a search was begun, its end says whether the file is its own.
void require_free(const QuantizeArguments& options, const std::filesystem::path& file) {
  require_writable("--out", file);
  if (!path_exists(file)) return;
  if (path_exists(options.given.model) && std::filesystem::equivalent(file, options.given.model)) {
    throw InputError("--out: " + shown(file) + " is the float model");
  }
  if (options.overwrite || search_begun(options.search.folder)) return;
  throw InputError(shown(file) +
                   ": is there already: --overwrite replaces it, --out names another");
}

std::string score_text(const std::optional<double>& score) {
  return score ? fmt::format("{:.6g}", *score) : "-";
}

void print_steps(const SearchResult& result, bool cut) {
  std::size_t width = 4;
  for (const SearchStep& step : result.steps) width = std::max(width, step.name.size());
  const auto scored = [&](const std::string& text) {
    return result.float_score ? fmt::format("  {:>8}", text) : "";
  };
  fmt::print("\n{:<{}}{}  {:>7}  {:>9}  {:>12}  {:>8}  {:>8}  {:>7}\n", "step", width,
             scored("score"), "SQNR dB", "decisions", "parameters", "integers", "Mbitops",
             "seconds");
  for (const SearchStep& step : result.steps) {
    fmt::print("{:<{}}{}  {:>7}  {:>9}  {:>12}  {:>6.1f} %  {:>8.1f}  {:>7.1f}{}\n", step.name,
               width, scored(score_text(step.score)), decibels_text(step.fidelity.sqnr_db()),
               percent_text(step.fidelity.agreement()), step.costs.bytes,
               100 * step.costs.integer_share(),
               static_cast<double>(step.costs.bit_operations) / 1e6, step.seconds,
               &step == &result.steps[result.chosen] ? "  <- chosen" : "");
  }
  fmt::print(
      "SQNR: of the output where it is least, and decisions that are the float model's, on "
      "the samples to choose by\n");
  if (cut)
    fmt::print("integers: of the multiplications before the cut; nodes behind it are in float\n");
  fmt::print("\n");
}

void print_fidelity(const SearchResult& result) {
  for (std::size_t i = 0; i < result.test.outputs.size(); ++i) {
    const OutputFidelity& output = result.test.outputs[i];
    fmt::print("output {} on samples that chose nothing: {}", shown(output.name),
               fidelity_text(output.sqnr_db, output.agreement, output.boxes));
    if (output.sqnr_db < kMostDecibels) {
      fmt::print("; worst: {} ({:.1f} dB)", shown(result.worst[i]), output.worst_sqnr_db);
    }
    fmt::print("\n");
  }
}

// How near the integers are where each network is fed with its own states.
void print_states(const StateSteps& states, const Experiment& quantized) {
  for (const OutputFidelity& output : states.in_a_row(*quantized.deployed_model()).outputs) {
    fmt::print("output {} in a row, fed with its own states: {} ({})\n", shown(output.name),
               fidelity_text(output.sqnr_db, output.agreement, output.boxes),
               states.in_a_row_text());
  }
}

// What stays of a graph that was cut, beside the integer part of that folder.
std::filesystem::path rest_path(const std::filesystem::path& folder) {
  return folder / "rest.onnx";
}

// What the user's score is of: where the graph was cut, a step's file with the rest behind it.
std::filesystem::path whole_file(const QuantizeArguments& options, const FoundRecipe& found,
                                 const std::filesystem::path& onnx) {
  if (found.cut.empty() || onnx == options.given.model) return onnx;
  const std::filesystem::path folder = onnx.parent_path(), whole = folder / "whole.onnx";
  imports::join_files(options.given.model, onnx, rest_path(folder), whole);
  return whole;
}

// Lets the search compare the outputs of the user's file, where ONNX Runtime can compute them.
void compare_whole(QuantizeArguments& options, const FoundRecipe& found) {
  const auto runtime = runtime_in(options.python);
  if (!runtime || !options.given.choices.freeze.empty()) {
    print_note("the values at the cut are compared, not the file's outputs: " +
               std::string(runtime ? "the float file wants the inputs of --freeze"
                                   : deploy::kNoOnnxRuntime));
    return;
  }
  options.search.whole = WholeFile{
      .in_float = options.given.model,
      .outputs = found.outputs,
      .run = [&options, &found, runtime](const std::filesystem::path& onnx, const Tensor& inputs,
                                         const deploy::OnnxPorts& ports) {
        return deploy::run_onnx_alone(*runtime, whole_file(options, found, onnx), inputs, ports);
      }};
}

// Writes the file, or finds that it is there already, of an earlier start of the same search.
void write_once(const QuantizeArguments& options, const std::filesystem::path& file,
                const std::filesystem::path& folder,
                const std::function<void(const std::filesystem::path&)>& write) {
  if (options.overwrite || !path_exists(file)) return write(file);
  const std::filesystem::path again = folder / "again.onnx";
  write(again);
  const bool same = sha256_of_file(again) == sha256_of_file(file);
  std::filesystem::remove(again);
  if (!same) {
    throw InputError(shown(file) +
                     ": is there already, and is not what this search gives: --overwrite replaces "
                     "it and begins again, --out names another");
  }
}

// Writes the chosen step's exports, and the ONNX file where the user wants it.
void write_result(const QuantizeArguments& options, const FoundRecipe& found,
                  const SearchResult& result, const std::filesystem::path& file,
                  const Registries& registries) {
  const SearchStep& chosen = result.steps[result.chosen];
  const LoadedRun run = load_run(result.run, chosen.checkpoint, registries);
  const deploy::Graph graph = deployed_graph(run);
  const deploy::ExportOptions how{.onnx = {.profile = options.given.profile}};
  const std::filesystem::path folder = result.run / "export";
  write_exports(graph, run.experiment->recipe().exports.formats, folder, how);
  write_once(options, file, folder, [&](const std::filesystem::path& to) {
    if (found.cut.empty()) {
      deploy::export_format("onnx").write(to, graph, how);
    } else {
      imports::join_files(options.given.model, export_path(folder, "onnx"), rest_path(folder), to);
    }
  });
  if (!found.cut.empty()) return;
  if (const auto note = note_of_fixed_sizes(graph, {"onnx"}, how.onnx)) print_note(*note);
}

Tensor test_inputs(const Experiment& experiment, std::int64_t count) {
  const Dataset samples = spread_samples(experiment.test(), count);
  return normalized(load_samples(samples).inputs, experiment.normalization());
}

// Whether the file of a graph that was cut gives what its parts give one after the other.
ExitCode verify_joined(const deploy::OnnxRuntime& runtime, const Experiment& experiment,
                       const std::filesystem::path& folder, const std::filesystem::path& file) {
  constexpr std::int64_t kSamples = 32;
  const std::int64_t samples = std::min(kSamples, experiment.test().size());
  const deploy::JoinedComparison compared =
      deploy::compare_joined(runtime, file, export_path(folder, "onnx"), rest_path(folder),
                             test_inputs(experiment, samples), onnx_ports(experiment));
  fmt::print(
      "{}: {} of {} outputs of {} samples differ from what the rest gives for the "
      "integer part's outputs\n",
      shown(file), compared.differing, compared.elements, samples);
  return compared.differing == 0 ? kDone : kMismatch;
}

// What a sample takes in ONNX Runtime beside the float file.
void print_times(const QuantizeArguments& options, const deploy::OnnxRuntime& runtime,
                 const Experiment& experiment, const std::filesystem::path& file) {
  const Tensor sample = test_inputs(experiment, 1);
  // The float file wants the frozen inputs, too.
  const bool beside_float = options.given.choices.freeze.empty();
  std::vector<std::filesystem::path> files{file};
  if (beside_float) files.push_back(options.given.model);
  try {
    const std::vector<float> milliseconds =
        deploy::time_onnx(runtime, files, sample, onnx_ports(experiment));
    fmt::print("ONNX Runtime {}: {:.2f} ms for a sample", runtime.version, milliseconds[0]);
    if (beside_float) fmt::print(", {:.2f} ms in float", milliseconds[1]);
    fmt::print("\n");
  } catch (const std::runtime_error& error) {
    print_note(std::string("not timed: ") + error.what());
  }
}

ExitCode quantize(QuantizeArguments& options, const Registries& registries) {
  const Widths& widths = *std::find_if(std::begin(kWidths), std::end(kWidths),
                                       [&](const Widths& w) { return w.word == options.bits; });
  options.search.weight_bits = widths.weights;
  options.search.activation_bits = widths.activations;
  options.search.widens = widths.widens;
  if (options.given.profile == qat::Profile::kTensorrt &&
      (widths.widens || widths.activations > 8)) {
    throw InputError("--bits " + options.bits + ": the profile tensorrt has activations of 8 bits");
  }
  options.given.range = options.range == "255" ? ImageRange::kByte : ImageRange::kOne;
  const std::string name = plain_name(options.given.model) + "-" + options.bits;
  options.search.folder = options.run_dir.empty() ? "runs/" + name : options.run_dir;
  const std::filesystem::path file = options.out.empty() ? name + ".onnx" : options.out;
  require_free(options, file);
  std::optional<StateSteps> states;
  if (!options.given.states.empty()) {
    states.emplace(options.given);
    options.given.data = std::filesystem::path(options.search.folder) / "steps.safetensors";
    states->write(options.given.data);
    show(states->text() + "\n");
  }
  const FoundRecipe found = found_recipe(options.given, registries);
  for (const std::string& line : found.lines) show(printable(line, 4096) + "\n");
  if (!options.score.empty()) {
    const auto score = [&](const std::filesystem::path& onnx) {
      return score_of(options.score, whole_file(options, found, onnx));
    };
    options.search.score = {.name = options.score + " " + fmt::format("{}", options.score_loss),
                            .of = score,
                            .most_loss = options.score_loss};
  }
  if (!found.cut.empty()) compare_whole(options, found);
  options.search.overwrites = options.overwrite;
  options.search.stop = &stop_on_signals();
  options.search.note = print_note;
  options.search.begins = [](const std::string& what) { show(what + " ...\n"); };
  options.search.done = [](const SearchStep& step) {
    show(fmt::format("  {}: {}{}\n", step.name,
                     step.score ? "score " + score_text(step.score) + ", " : "",
                     fidelity_text(step.fidelity.sqnr_db(), step.fidelity.agreement(),
                                   step.fidelity.of_boxes())));
  };
  const SearchResult result = search_quantization(found, options.search, registries);
  if (result.interrupted) {
    show("interrupted: the same command goes on\n");
    return kInterrupted;
  }
  write_result(options, found, result, file, registries);
  const SearchStep& chosen = result.steps[result.chosen];
  ExitCode verified = verify_run(
      {.run = result.run.string(),
       .checkpoint = chosen.checkpoint,
       .python = options.python,
       .sqnr_db = found.cut.empty() ? std::optional(result.test.sqnr_db()) : std::nullopt,
       .seven_bits = "--portable"},
      registries);
  print_steps(result, !found.cut.empty());
  for (const std::string& reason : result.reasons) fmt::print("{}\n", reason);
  if (!result.enough) {
    fmt::print(
        "not good enough yet, by {}: more --minutes, --bits mixed or --most-float may help\n",
        result.float_score ? "--score-loss" : "--sqnr, --agreement and --boxes");
  }
  if (result.float_score) {
    fmt::print("score {}, of the float model {}\n", score_text(chosen.score),
               score_text(result.float_score));
  }
  print_fidelity(result);
  if (states)
    print_states(*states,
                 *load_run(result.run, chosen.checkpoint, registries, RunData::kNone).experiment);
  if (const auto runtime = runtime_in(options.python)) {
    const LoadedRun run = load_run(result.run, chosen.checkpoint, registries, RunData::kTest);
    // The search has said where ONNX Runtime cannot run the float file.
    if (!found.cut.empty() && (result.whole || !options.search.whole)) {
      verified =
          std::max(verified, verify_joined(*runtime, *run.experiment, result.run / "export", file));
    }
    print_times(options, *runtime, *run.experiment, file);
  }
  fmt::print("written: {}\nrun: {} (recipe.yaml there gives it again)\n", shown(file),
             shown(result.run));
  return verified;
}

}  // namespace

Verb add_quantize(CLI::App& app) {
  auto options = std::make_shared<QuantizeArguments>();
  FileAndData& given = options->given;
  QuantizationSearch& search = options->search;
  CLI::App* verb = app.add_subcommand(
      "quantize", "From a float ONNX file and unlabelled data to a verified integer ONNX file");
  verb->add_option("model", given.model, "The float ONNX file")->required();
  verb->add_option("--data", given.data,
                   "Inputs like those that the model will see: a folder of images, .npy, .npz, "
                   ".safetensors or .csv")
      ->required();
  verb->add_option("--out", options->out,
                   "The integer ONNX file (default: <model>-<bits>.onnx in the current folder)");
  verb->add_option("--run-dir", options->run_dir,
                   "The folder of the search (default: runs/<model>-<bits>)");
  verb->add_flag("--overwrite", options->overwrite, "Replace both and begin again");
  add_choices(*verb, given.choices);
  verb->add_option(
          "--state", given.states,
          "An input that is an output of the step before: h=hn; --data has sequences then, "
          "[sequences, steps, ...]; may be given several times")
      ->allow_extra_args(false);
  verb->add_option("--mean", given.mean,
                   "Of images: what is subtracted, one number or one for each channel")
      ->delimiter(',');
  verb->add_option("--std", given.stddev, "Of images: what the difference is divided by")
      ->delimiter(',');
  verb->add_option("--range", options->range,
                   "Of images: the largest value as the model reads them, before --mean and --std: "
                   "1 or 255 (default: 1)")
      ->check(CLI::IsMember({"1", "255"}));
  verb->add_option_function<std::vector<std::int64_t>>(
          "--resize",
          [options](const std::vector<std::int64_t>& size) {
            options->given.resize = {size.at(0), size.at(1)};
          },
          "Of images: height,width (default: the model's)")
      ->delimiter(',')
      ->expected(2)
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{16384}));
  verb->add_option(
          "--bits", options->bits,
          "Widths of weights and activations: w8a8, w4a8, w8a16, or mixed: w8a8, and w8a16 "
          "where the model is most sensitive (default: w8a8)")
      ->check(CLI::IsMember(words_of_widths()));
  verb->add_option_function<std::string>(
          "--profile",
          [options](const std::string& word) {
            options->given.profile = value_of<qat::Profile>(word);
          },
          "The runtime that the ONNX file is for: ort, tensorrt (default: ort)")
      ->check(is_no_profile_of_fixed_point)
      ->check(CLI::IsMember(onnx_profiles()));
  verb->add_flag("--portable", given.portable,
                 "Weights of 7 bits, which every x86 processor multiplies without saturation");
  verb->add_option("--minutes", search.minutes, "Time for the search (default: 30)")
      ->check(CLI::Range(0.1, 1e5));
  verb->add_option_function<double>(
          "--most-float", [options](double percent) { options->search.most_float = percent / 100; },
          "The percentage of the multiplications that may stay in float, of those of layers that "
          "can "
          "be in integers, which an LSTM or GRU cannot be here (default: 10)")
      ->check(CLI::Range(0.0, 100.0));
  verb->add_option("--sqnr", search.goal.sqnr_db,
                   "Good enough for an output that decides nothing, in dB (default: 25)")
      ->check(CLI::Range(0.0, 200.0));
  verb->add_option("--agreement", search.goal.agreement,
                   "Good enough for an output of scores: percent of its decisions that are the "
                   "float model's (default: 99)")
      ->check(CLI::Range(0.0, 100.0));
  verb->add_option("--boxes", search.goal.boxes,
                   "Good enough for an output of boxes and their scores: percent of the boxes that "
                   "overlap the float model's by half (default: 97)")
      ->check(CLI::Range(0.0, 100.0));
  CLI::Option* score = verb->add_option(
      "--score", options->score,
      "A command that prints a number for the ONNX file {onnx}, the larger the better; it decides "
      "in the place of --sqnr and --agreement");
  verb->add_option("--score-loss", options->score_loss,
                   "Good enough: so many percent less than the float file's score (default: 1)")
      ->check(CLI::Range(0.0, 100.0))
      ->needs(score);
  verb->add_option("--device", given.device, "The device: auto, cpu, cuda or cuda:N");
  add_python(*verb, options->python);
  add_threads(*verb);
  return [options](const Registries& registries) { return quantize(*options, registries); };
}

}  // namespace steelyard::cli
