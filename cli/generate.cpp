#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iostream>
#include <iterator>
#include <limits>
#include <memory>

#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/checkpoint.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/import/language/gguf_decoder.h"
#include "steelyard/import/language/huggingface_decoder.h"
#include "steelyard/qat/blocks/stored_layers.h"
#include "steelyard/qat/forms/stored_values.h"
#include "steelyard/qat/model/qat_model.h"
#include "steelyard/recipes/models/imported_model.h"
#include "steelyard/recipes/runs/gguf_export.h"
#include "steelyard/recipes/runs/huggingface_export.h"
#include "steelyard/recipes/runs/loaded_run.h"
#include "steelyard/recipes/text/generation.h"
#include "steelyard/recipes/text/gguf_tokenizer.h"
#include "steelyard/recipes/text/huggingface_tokenizer.h"
#include "steelyard/recipes/text/tokenization.h"

namespace steelyard::cli {
namespace {

constexpr std::int64_t kTokens = 64;

struct GenerateArguments {
  std::string model;
  std::string prompt;
  std::string checkpoint = "last";
  std::int64_t tokens = kTokens;
  SamplingOptions sampling;
  std::int64_t seed = 1;
  bool special = false;
  std::string python;
};

// A model, and what the file that it came from says of its texts.
struct LanguageModel {
  std::shared_ptr<Module> module;
  std::filesystem::path file;  // or folder
  LanguageTokenizer tokenizer;
  std::optional<std::int64_t> context;
};

LanguageModel with_texts_of_gguf(std::shared_ptr<Module> module, const GgufReader& file,
                                 const std::filesystem::path& path) {
  return {std::move(module), path, gguf_tokenizer(file), imports::context_length(file)};
}

LanguageModel with_texts_of_folder(std::shared_ptr<Module> module,
                                   const std::filesystem::path& folder) {
  return {std::move(module), folder, huggingface_tokenizer(folder), imports::context_of(folder)};
}

std::shared_ptr<Module> built(const imports::Imported& imported, const std::string& name) {
  std::shared_ptr<Module> module = imports::build(imported.graph, /*with_head=*/true, name);
  load_into(*module, imported.weights, name);
  return module;
}

LanguageModel of_run(const GenerateArguments& options, const Registries& registries) {
  auto run = std::make_shared<LoadedRun>(
      load_run(options.model, options.checkpoint, registries, RunData::kNone));
  print_notes(run->notes);
  const ModelSpec& model = run->experiment->recipe().model;
  if (!model.is_language_model()) {
    throw InputError(shown(options.model) +
                     ": expected the run of a language model (model: {gguf: FILE} or "
                     "{huggingface: FOLDER})");
  }
  const std::filesystem::path source = model.gguf ? source_gguf(*run) : source_huggingface(*run);
  Module& whole = run->experiment->model();
  auto* quantized = dynamic_cast<qat::QatModel*>(&whole);
  Module& module = quantized == nullptr ? whole : *quantized->model();
  qat::store_blocks(module);
  qat::store_weight_values(module);
  const bool gguf = model.gguf.has_value();
  const std::shared_ptr<Module> kept(std::move(run), &module);
  return gguf ? with_texts_of_gguf(kept, GgufReader(source), source)
              : with_texts_of_folder(kept, source);
}

LanguageModel of_file(const std::string& path) {
  const GgufReader file(path);
  return with_texts_of_gguf(built(imports::import_decoder(file, 1), file.name()), file, path);
}

LanguageModel language_model(const GenerateArguments& options, const Registries& registries) {
  if (!is_folder(options.model)) return of_file(options.model);
  const std::filesystem::path folder = options.model;
  if (!path_exists(folder / imports::kConfigFile)) return of_run(options, registries);
  require_float_folder(folder);
  return with_texts_of_folder(built(imports::import_huggingface(folder, 1), shown(folder)), folder);
}

std::string prompt_of(const GenerateArguments& options) {
  if (options.prompt != "-") return options.prompt;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

// Prints bytes of a text as they come. On a terminal nothing but text, line ends and tabs reaches
// it, and a character only as a whole.
class TextOutput {
 public:
  void add(std::string_view bytes) {
    waiting_ += bytes;
    flush(waiting_.size() - unfinished(waiting_));
  }
  void finish() {
    flush(waiting_.size());
    fmt::print("\n");
  }

 private:
  // Bytes at the end that begin a character whose others are to come.
  static std::size_t unfinished(std::string_view text) {
    for (std::size_t n = 1; n <= std::min<std::size_t>(3, text.size()); ++n) {
      const auto byte = static_cast<unsigned char>(text[text.size() - n]);
      if (byte < 0x80) return 0;
      if (byte < 0xC0) continue;
      const std::size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
      return length > n ? n : 0;
    }
    return 0;
  }

  void flush(std::size_t count) {
    std::string_view text = std::string_view(waiting_).substr(0, count);
    while (!text.empty()) {
      const std::size_t line = terminal_ ? text.find_first_of("\n\t") : std::string_view::npos;
      const std::string_view part = text.substr(0, line);
      const std::string shown_part =
          terminal_ ? printable(part, 4 * part.size()) : std::string(part);
      std::fwrite(shown_part.data(), 1, shown_part.size(), stdout);
      text.remove_prefix(part.size());
      if (text.empty()) break;
      std::fputc(text[0], stdout);
      text.remove_prefix(1);
    }
    waiting_.erase(0, count);
    std::fflush(stdout);
  }

  bool terminal_ = isatty(STDOUT_FILENO) == 1;
  std::string waiting_;
};

ExitCode generate_text(const GenerateArguments& options, const Registries& registries) {
  if (std::isnan(options.sampling.temperature) || std::isnan(options.sampling.top_p)) {
    throw InputError("generate: expected numbers for --temperature and --top-p, got NaN");
  }
  if (!is_folder(options.model) && options.checkpoint != GenerateArguments{}.checkpoint) {
    throw InputError("generate: --checkpoint belongs to a run's folder, got the file " +
                     shown(options.model));
  }
  const LanguageModel model = language_model(options, registries);
  const LanguageTokenizer& tokenizer = model.tokenizer;
  const auto python = find_tokenizers(options.python);
  if (!python) throw InputError(kNoTokenizers);
  std::vector<std::int64_t> tokens =
      tokens_of_text(*python, tokenizer, model.file, prompt_of(options), options.special);
  if (tokens.empty() && tokenizer.begin_number) tokens = {*tokenizer.begin_number};
  if (tokens.empty()) throw InputError("generate: expected a prompt of at least one token");
  const auto& context = model.context;
  const std::int64_t room =
      context ? *context - std::ssize(tokens) : std::numeric_limits<std::int64_t>::max();
  if (room < 1) {
    throw InputError(
        fmt::format("generate: expected a prompt of fewer than the {} tokens of the model's "
                    "context, got {}",
                    *context, tokens.size()));
  }
  const std::int64_t most = std::min(options.tokens, room);
  const auto begin = std::chrono::steady_clock::now();
  std::int64_t count = 0;
  bool ended = false;
  TextOutput output;
  const auto seed = static_cast<std::uint64_t>(options.seed);
  generate(*model.module, tokens, most, options.sampling, seed, [&](std::int64_t token) {
    ++count;
    ended = std::ranges::find(tokenizer.end_numbers, token) != tokenizer.end_numbers.end();
    const bool known = token < std::ssize(tokenizer.bytes);  // not one that fills up the table
    if (!ended && known) output.add(tokenizer.bytes[static_cast<std::size_t>(token)]);
    return !ended;
  });
  output.finish();
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  print_note(fmt::format("{} tokens after {}, {:.1f} a second{}", count, tokens.size(),
                         static_cast<double>(count) / seconds,
                         ended ? ", the last one ends the text"
                         : most < options.tokens
                             ? fmt::format(", the context of {} is full", *context)
                             : ""));
  return kDone;
}

}  // namespace

Verb add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateArguments>();
  CLI::App* verb = app.add_subcommand("generate", "Let a language model go on with a text");
  verb->footer(
      "The arithmetic is that of training: with export.target that of the exported file. Keys and "
      "values are kept, in float32: memory for the prompt and --tokens more is taken at once, "
      "or for the model's context where that is less. A run needs the GGUF file or the folder that "
      "it began with, for its vocabulary. Control tokens that are drawn count and print nothing; a "
      "line "
      "ends the text.");
  verb->add_option(
          "model", options->model,
          "The run's folder, or a GGUF file or a float folder of transformers, whose weights are "
          "then computed with in float")
      ->required();
  verb->add_option("prompt", options->prompt, "The text, or - for standard input")->required();
  verb->add_option("--tokens", options->tokens, "The most tokens to add")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 20))
      ->capture_default_str();
  CLI::Option* temperature =
      verb->add_option(
              "--temperature", options->sampling.temperature,
              "By which logits are divided before a token is drawn; 0: the likeliest token")
          ->check(CLI::Range(0.0, 100.0))
          ->capture_default_str();
  verb->add_option("--top-k", options->sampling.top_k,
                   "With a temperature: draw among so many likeliest tokens; 0: all")
      ->needs(temperature)
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 24))
      ->capture_default_str();
  verb->add_option("--top-p", options->sampling.top_p,
                   "And among the fewest of these whose probabilities reach it")
      ->needs(temperature)
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--seed", options->seed, "Random seed of the draws")
      ->needs(temperature)
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 62))
      ->capture_default_str();
  verb->add_option("--checkpoint", options->checkpoint, "Of a run: last, best or a file")
      ->capture_default_str();
  verb->add_flag("--special", options->special,
                 "Names of control tokens in the prompt, such as <|im_start|>, are these tokens");
  add_python(*verb, options->python, "tokenizers");
  add_threads(*verb);
  return [options](const Registries& registries) { return generate_text(*options, registries); };
}

}  // namespace steelyard::cli
