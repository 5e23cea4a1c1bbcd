#include "steelyard/recipes/text/gguf_tokenizer.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"

namespace steelyard {
namespace {

using nlohmann::json;

// The kinds of tokens, in the order of the format's numbers.
constexpr std::int64_t kControl = 3, kUserDefined = 4;

// How a text is cut into words before their bytes are joined, the first that matches at each place.
constexpr const char* kWordsOfLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kWordsOfQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

struct Words {
  std::string_view name;           // tokenizer.ggml.pre
  const char* pattern;             // null: GPT-2's own
  bool digits = false;             // each digit is a word
  bool composes = false;           // Unicode's NFC first
  bool whole_words_first = false;  // a word that is a token is not joined from its bytes
  bool begins = false;             // with tokenizer.ggml.bos_token_id, where the file does not say
};
constexpr Words kWords[] = {
    {.name = "gpt-2", .pattern = nullptr},
    {.name = "llama-bpe", .pattern = kWordsOfLlama3, .whole_words_first = true, .begins = true},
    {.name = "qwen2", .pattern = kWordsOfQwen2, .composes = true},
    {.name = "smollm", .pattern = nullptr, .digits = true},
};

// The entries `tokenizer.ggml.*` of a file.
class Entries {
 public:
  explicit Entries(const GgufReader& file) : file_(file) {}

  [[noreturn]] void refuse(std::string_view key, const std::string& text) const {
    throw InputError(file_.name() + ": " + full(key) + ": " + text);
  }

  std::vector<std::string_view> texts(std::string_view key) const {
    const auto found = required(key).texts();
    if (!found) refuse(key, "expected an array of strings");
    return *found;
  }

  std::string_view text(std::string_view key) const {
    const auto found = required(key).text();
    if (!found) refuse(key, "expected a string");
    return *found;
  }

  std::optional<std::int64_t> whole_number(std::string_view key) const {
    const GgufValue* value = file_.header().find(full(key));
    if (value == nullptr) return std::nullopt;
    const auto number = value->whole_number();
    if (!number) refuse(key, "expected a whole number");
    return number;
  }

  // Empty where there is no such key.
  std::vector<std::int64_t> whole_numbers(std::string_view key) const {
    const GgufValue* value = file_.header().find(full(key));
    if (value == nullptr) return {};
    const auto numbers = value->whole_numbers();
    if (!numbers) refuse(key, "expected an array of whole numbers");
    return *numbers;
  }

 private:
  static std::string full(std::string_view key) { return "tokenizer.ggml." + std::string(key); }
  const GgufValue& required(std::string_view key) const {
    const GgufValue* value = file_.header().find(full(key));
    if (value == nullptr) {
      throw InputError(file_.name() + ": expected an entry '" + full(key) +
                       "': a file without it has no vocabulary");
    }
    return *value;
  }

  const GgufReader& file_;
};

const Words& words_of(const Entries& entries) {
  const std::string_view model = entries.text("model");
  if (model != "gpt2") {
    entries.refuse("model", "expected gpt2 (byte-level BPE), got " + printable(model) +
                                "; the tokenizer.json of the model may be given instead");
  }
  const std::string_view name = entries.text("pre");
  std::string known;
  for (const Words& words : kWords) {
    if (words.name == name) return words;
    known += (known.empty() ? "" : ", ") + std::string(words.name);
  }
  entries.refuse("pre", "expected one of " + known + ", got " + printable(name) +
                            "; the tokenizer.json of the model may be given instead");
}

json normalizer_of(const Words& words) {
  return words.composes ? json{{"type", "NFC"}} : json(nullptr);
}

json pre_tokenizer_of(const Words& words) {
  json steps = json::array();
  if (words.digits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
  if (words.pattern != nullptr) {
    steps.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", words.pattern}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", words.pattern == nullptr}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

// The token that a key gives the number of.
std::optional<std::int64_t> token_at(const Entries& entries, std::string_view key,
                                     const std::vector<std::string_view>& tokens) {
  const auto id = entries.whole_number(key);
  if (!id) return std::nullopt;
  if (*id < 0 || *id >= std::ssize(tokens)) {
    entries.refuse(key, "expected a number below " + std::to_string(tokens.size()) + ", got " +
                            std::to_string(*id));
  }
  return id;
}

std::string text_of(const std::vector<std::string_view>& tokens, std::optional<std::int64_t> id) {
  return id ? std::string(tokens[static_cast<std::size_t>(*id)]) : "";
}

}  // namespace

LanguageTokenizer gguf_tokenizer(const GgufReader& file) {
  const Entries entries(file);
  const Words& words = words_of(entries);
  const std::vector<std::string_view> tokens = entries.texts("tokens");
  const std::vector<std::int64_t> kinds = entries.whole_numbers("token_type");
  if (!kinds.empty() && kinds.size() != tokens.size()) {
    entries.refuse("token_type", "expected " + std::to_string(tokens.size()) + " numbers, got " +
                                     std::to_string(kinds.size()));
  }
  LanguageTokenizer made;
  made.cuts = true;
  json vocabulary = json::object(), added = json::array();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string text(tokens[i]);
    if (!vocabulary.emplace(text, i).second) {
      entries.refuse("tokens", printable(text) + " is there twice, at " + vocabulary[text].dump() +
                                   " and " + std::to_string(i));
    }
    const std::int64_t kind = kinds.empty() ? 0 : kinds[i];
    made.bytes.push_back(kind == kControl       ? ""
                         : kind == kUserDefined ? text
                                                : bytes_of_token(text));
    if (kind != kControl && kind != kUserDefined) continue;
    added.push_back({{"id", i},
                     {"content", text},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", kind == kControl}});
  }
  json merges = json::array();
  for (const std::string_view merge : entries.texts("merges")) merges.push_back(merge);
  const json whole = {{"version", "1.0"},
                      {"added_tokens", added},
                      {"normalizer", normalizer_of(words)},
                      {"pre_tokenizer", pre_tokenizer_of(words)},
                      {"decoder",
                       {{"type", "ByteLevel"},
                        {"add_prefix_space", true},
                        {"trim_offsets", true},
                        {"use_regex", true}}},
                      {"model",
                       {{"type", "BPE"},
                        {"fuse_unk", false},
                        {"byte_fallback", false},
                        {"ignore_merges", words.whole_words_first},
                        {"vocab", vocabulary},
                        {"merges", merges}}}};
  try {
    made.json = whole.dump();
  } catch (const json::type_error&) {
    entries.refuse("tokens", "expected texts in UTF-8");
  }
  const bool begins = entries.whole_number("add_bos_token").value_or(words.begins ? 1 : 0) != 0;
  if (begins) made.begin_number = token_at(entries, "bos_token_id", tokens);
  const auto end = token_at(entries, "eos_token_id", tokens);
  if (end) made.end_numbers = {*end};
  made.begin = text_of(tokens, made.begin_number);
  made.end = text_of(tokens, end);
  return made;
}

}  // namespace steelyard
