#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "cli/python.h"
#include "cli/run_output.h"
#include "cli/verbs.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/recipes/text/tokenization.h"

namespace steelyard::cli {
namespace {

constexpr double kTestShare = 0.05;

struct TokenizeArguments {
  TokenizationOptions tokenization;
  std::string out;
  std::string begin, end;
  double test = kTestShare;
  bool overwrite = false;
  std::string python;
};

// The last part of the tokens as a test set, or all in one file.
ExitCode tokenize_texts(const TokenizeArguments& options, const CLI::App& verb) {
  TokenizationOptions tokenization = options.tokenization;
  const auto chosen = [&](const char* option, const std::string& given) {
    return verb.count(option) == 0 ? std::nullopt
                                   : std::optional(given == "none" ? std::string() : given);
  };
  tokenization.begin = chosen("--begin", options.begin);
  tokenization.end = chosen("--end", options.end);
  const std::filesystem::path out(options.out);
  const bool whole = out.extension() == ".bin";
  if (whole && verb.count("--test") != 0) {
    throw InputError("tokenize: --test is for a folder as --out, got the file " + shown(out));
  }
  const std::filesystem::path train = whole ? out : out / "train.bin";
  const std::filesystem::path test = out / "test.bin";
  for (const std::filesystem::path& file : {train, test}) {
    if (!options.overwrite && path_exists(file)) {
      throw InputError(shown(file) + ": is there already: --overwrite replaces it");
    }
  }
  if (whole) require_writable("--out", train);
  const auto python = find_tokenizers(options.python);
  if (!python) {
    throw InputError(options.python.empty()
                         ? kNoTokenizers
                         : shown(options.python) + ": no Python with tokenizers");
  }
  const Tokens tokens = tokenize(*python, tokenization);
  if (tokens.count == 0) throw InputError("tokenize: the texts have no tokens");
  const TokenType type = tokens.vocabulary <= 1 << 16 ? TokenType::kU16 : TokenType::kU32;
  const auto around = [](const std::string& token) {
    return token.empty() ? std::string("nothing") : "'" + printable(token) + "'";
  };
  fmt::print("{} tokens of {} document{}, with {} before each and {} behind; a vocabulary of {}\n",
             tokens.count, tokens.documents, tokens.documents == 1 ? "" : "s", around(tokens.begin),
             around(tokens.end), tokens.vocabulary);
  const auto write = [&](const std::filesystem::path& file, std::int64_t first,
                         std::int64_t count) {
    write_tokens(tokens, first, count, type, file);
    fmt::print("{}: {} tokens, {}\n", shown(file), count, word_of(type));
  };
  if (whole) {
    write(train, 0, tokens.count);
    return kDone;
  }
  create_folders(out);
  const auto tested =
      static_cast<std::int64_t>(std::llround(options.test * static_cast<double>(tokens.count)));
  write(train, 0, tokens.count - tested);
  write(test, tokens.count - tested, tested);
  return kDone;
}

}  // namespace

Verb add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeArguments>();
  CLI::App* verb = app.add_subcommand(
      "tokenize", "Make the numbers of tokens that a language model is trained on, from text");
  verb->add_option("tokenizer", options->tokenization.tokenizer,
                   "The GGUF file or the folder of the model, or its tokenizer.json")
      ->required();
  verb->add_option("texts", options->tokenization.texts,
                   "Files in UTF-8, each a document; of a .jsonl file each line is one")
      ->required();
  verb->add_option("--out", options->out,
                   "A folder for train.bin and test.bin, which data: {dataset: tokens} reads, or "
                   "one file NAME.bin")
      ->required();
  verb->add_option("--test", options->test, "The share of the last tokens that go to test.bin")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  verb->add_option("--field", options->tokenization.field, "The text in a line of a .jsonl file")
      ->capture_default_str();
  verb->add_option("--begin", options->begin,
                   "A token in front of each document, or none (default: what the GGUF file says)");
  verb->add_option("--end", options->end,
                   "A token behind each document, or none (default: the GGUF file's end of text)");
  verb->add_flag("--special", options->tokenization.special,
                 "Names of control tokens in a text, such as <|im_start|>, are these tokens");
  verb->add_flag("--overwrite", options->overwrite, "Replace files that are there");
  add_python(*verb, options->python, "tokenizers");
  return [options, verb](const Registries&) { return tokenize_texts(*options, *verb); };
}

}  // namespace steelyard::cli
