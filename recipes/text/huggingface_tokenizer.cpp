#include "steelyard/recipes/text/huggingface_tokenizer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/json_problem.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/import/language/huggingface_decoder.h"

namespace steelyard {
namespace {

using nlohmann::json;

constexpr std::int64_t kMostTokens = std::int64_t{1} << 24;

// Whether a part of the tokenizer, or one of the parts that a Sequence has, is of that type.
const json* part_of_type(const json& part, const char* list, const char* type) {
  if (!part.is_object()) return nullptr;
  if (part.value("type", "") == type) return &part;
  const auto parts = part.find(list);
  if (parts == part.end() || !parts->is_array()) return nullptr;
  for (const json& one : *parts) {
    if (one.is_object() && one.value("type", "") == type) return &one;
  }
  return nullptr;
}

// The first token of the template, if that is a control token.
std::string begin_of(const json& tokenizer) {
  const json processor = tokenizer.value("post_processor", json());
  const json* made = part_of_type(processor, "processors", "TemplateProcessing");
  if (made == nullptr || made->at("single").empty()) return "";
  const json& first = made->at("single").at(0);
  return first.contains("SpecialToken") ? first.at("SpecialToken").at("id").get<std::string>() : "";
}

// SentencePiece's: a low line of three bytes stands for a space, <0x0A> for a byte.
std::string bytes_of_piece(const std::string& piece) {
  static constexpr std::string_view kSpace = "\xE2\x96\x81", kDigits = "0123456789ABCDEF";
  if (piece.size() == 6 && piece.starts_with("<0x") && piece.back() == '>') {
    const std::size_t high = kDigits.find(piece[3]), low = kDigits.find(piece[4]);
    if (high != std::string_view::npos && low != std::string_view::npos) {
      return {static_cast<char>(16 * high + low)};
    }
  }
  std::string bytes;
  for (std::size_t i = 0; i < piece.size();) {
    const bool space = std::string_view(piece).substr(i, kSpace.size()) == kSpace;
    bytes += space ? ' ' : piece[i];
    i += space ? kSpace.size() : 1;
  }
  return bytes;
}

// The texts of tokens by their numbers.
class Vocabulary {
 public:
  void add(const std::string& token, std::int64_t number) {
    if (number < 0 || number >= kMostTokens) {
      throw std::invalid_argument("expected numbers of tokens from 0 to " +
                                  std::to_string(kMostTokens - 1) + ", got " +
                                  std::to_string(number));
    }
    tokens_[number] = token;
  }
  template <typename F>
  void each(const F& take) const {
    for (const auto& [number, token] : tokens_) take(number, token);
  }
  std::string text(std::optional<std::int64_t> number) const {
    const auto found = tokens_.find(number.value_or(-1));
    return found == tokens_.end() ? "" : found->second;
  }
  std::optional<std::int64_t> number(const std::string& text) const {
    const auto found = std::find_if(tokens_.begin(), tokens_.end(),
                                    [&](const auto& token) { return token.second == text; });
    return found == tokens_.end() ? std::nullopt : std::optional(found->first);
  }
  std::int64_t size() const { return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1; }

 private:
  std::map<std::int64_t, std::string> tokens_;
};

LanguageTokenizer tokenizer_in(const json& file, std::vector<std::int64_t> ends) {
  if (!file.is_object()) throw std::invalid_argument("expected an object");
  const json decoder = file.value("decoder", json());
  const bool of_bytes = part_of_type(decoder, "decoders", "ByteLevel") != nullptr;
  if (!of_bytes && part_of_type(decoder, "decoders", "ByteFallback") == nullptr) {
    throw std::invalid_argument("expected a decoder of type ByteLevel or with ByteFallback");
  }
  const json model = file.value("model", json());
  const json vocabulary = model.is_object() ? model.value("vocab", json()) : json();
  if (!vocabulary.is_object()) {
    throw std::invalid_argument("expected a model of type BPE, whose 'vocab' is an object");
  }
  Vocabulary all, own;
  for (const auto& [token, number] : vocabulary.items()) {
    all.add(token, number.get<std::int64_t>());
    own.add(token, number.get<std::int64_t>());
  }
  LanguageTokenizer made;
  std::map<std::int64_t, std::string> added;
  for (const json& token : file.value("added_tokens", json::array())) {
    const auto number = token.at("id").get<std::int64_t>();
    const auto text = token.at("content").get<std::string>();
    all.add(text, number);
    added[number] = token.value("special", false) ? "" : text;
  }
  made.bytes.resize(static_cast<std::size_t>(all.size()));
  own.each([&](std::int64_t number, const std::string& token) {
    made.bytes[static_cast<std::size_t>(number)] =
        of_bytes ? bytes_of_token(token) : bytes_of_piece(token);
  });
  for (const auto& [number, text] : added) made.bytes[static_cast<std::size_t>(number)] = text;
  made.begin = begin_of(file);
  made.begin_number = all.number(made.begin);
  if (!made.begin.empty() && !made.begin_number) {
    throw std::invalid_argument("expected a token '" + printable(made.begin) +
                                "', which the template puts before a text");
  }
  if (!ends.empty()) {
    made.end = all.text(ends[0]);
    if (made.end.empty()) {
      throw std::invalid_argument("expected a token of the number " + std::to_string(ends[0]) +
                                  ", the eos_token_id of config.json");
    }
  }
  made.end_numbers = std::move(ends);
  return made;
}

}  // namespace

LanguageTokenizer huggingface_tokenizer(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kTokenizerFile;
  std::string text = read_file(path, kMostTokenizerBytes);
  try {
    LanguageTokenizer made = tokenizer_in(json::parse(text), imports::ends_of_text(folder));
    made.json = std::move(text);
    return made;
  } catch (const json::exception& error) {
    throw InputError(json_problem(printable(path.string()), error));
  } catch (const std::invalid_argument& error) {
    throw InputError(printable(path.string()) + ": " + error.what());
  }
}

}  // namespace steelyard
