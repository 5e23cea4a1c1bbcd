#include "steelyard/recipes/language/yaml_document.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <functional>
#include <sstream>
#include <unordered_set>

#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/language/scalar.h"

namespace steelyard {
namespace {

// The longest key, written as to_yaml() does: YAML takes no more than 1024 characters before a
// colon.
constexpr std::size_t kMostKeyBytes = 1000;

// As YAML, quoted where it has to be.
std::string scalar_yaml(const std::string& text, bool is_text);

using Placer = std::function<std::string(const YAML::Mark&)>;

// Builds the tree from yaml-cpp's events and rejects what recipes must not hold.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, Placer placer) : text_(text), placer_(std::move(placer)) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, "?", anchor, YamlNode::Kind::kNull, "");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail_at(placer_(mark), "aliases are not allowed in a recipe");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    add(mark, tag, anchor, YamlNode::Kind::kScalar, value);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kList);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::kTable);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  // A list or table whose members are arriving. The pointer stays valid: a container grows only
  // while no child of it is open.
  struct Open {
    YamlNode* node;
    bool has_key = false;                       // tables: the last entry waits for its value
    std::unordered_set<std::string> keys = {};  // of the entries so far
  };

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (static_cast<int>(open_.size()) >= kMaxYamlDepth) {
      fail_at(placer_(mark),
              "expected at most " + std::to_string(kMaxYamlDepth) + " levels of nesting, got more");
    }
    open_.push_back({add(mark, tag, anchor, kind, "")});
  }

  YamlNode* add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                YamlNode::Kind kind, const std::string& text) {
    std::string place = placer_(mark);
    if (++nodes_ > kMaxYamlNodes) {
      fail_at(place, "expected at most " + std::to_string(kMaxYamlNodes) + " values, got more");
    }
    if (anchor != YAML::NullAnchor) fail_at(place, "anchors are not allowed in a recipe");
    const bool quoted = tag == "!";
    const bool tagged =
        quoted ? text_[static_cast<std::size_t>(mark.pos)] == '!' : !tag.empty() && tag != "?";
    if (tagged) fail_at(place, "tags are not allowed in a recipe, got " + quote_for_message(tag));
    if (quoted) require_closed_quote(mark);
    // yaml-cpp makes single bytes of these two escapes.
    if (!is_utf8(text)) {
      fail_at(place, "expected UTF-8 text; for \\_ write \\u00a0, for \\N \\u0085");
    }
    if (wants_key()) {
      add_key(place, kind, text);
      return nullptr;
    }
    // yaml-cpp places a missing value at whatever comes next.
    const bool after_key = !open_.empty() && open_.back().has_key;
    if (kind == YamlNode::Kind::kNull && after_key) {
      place = open_.back().node->entries.back().place;
    }
    YamlNode* node = next_value();
    node->kind = kind;
    node->text = text;
    node->quoted = quoted;
    node->place = place;
    return node;
  }

  // yaml-cpp takes the rest of the text for a scalar whose quote is not closed.
  void require_closed_quote(const YAML::Mark& mark) const {
    const auto start = static_cast<std::size_t>(mark.pos);
    const char quote = text_[start];
    if (quote != '\'' && quote != '"') return;  // a block scalar
    for (std::size_t i = start + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        const bool doubled = quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote;
        if (!doubled) return;
        ++i;
      }
    }
    fail_at(placer_(mark), "not valid YAML: the quote that opens here is not closed");
  }

  bool wants_key() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::kTable &&
           !open_.back().has_key;
  }

  void add_key(const std::string& place, YamlNode::Kind kind, const std::string& key) {
    if (kind == YamlNode::Kind::kNull) fail_at(place, "expected a word as key, got nothing");
    if (kind != YamlNode::Kind::kScalar) {
      fail_at(place, "expected a word as key, got a list or table (is a bracket not closed?)");
    }
    if (scalar_yaml(key, true).size() > kMostKeyBytes) {
      fail_at(place, "a key is longer than " + std::to_string(kMostKeyBytes) +
                         " bytes: " + quote_for_message(key));
    }
    if (key == "<<") fail_at(place, "merge keys ('<<') are not allowed in a recipe");
    Open& table = open_.back();
    if (!table.keys.insert(key).second) {
      const auto& entries = table.node->entries;
      const auto first = std::find_if(entries.begin(), entries.end(),
                                      [&](const YamlEntry& entry) { return entry.key == key; });
      fail_at(place, "duplicate key " + quote_for_message(key) + ", first at " + first->place);
    }
    table.node->entries.push_back({key, place, {}});
    table.has_key = true;
  }

  YamlNode* next_value() {
    if (open_.empty()) return &root_;
    Open& parent = open_.back();
    if (parent.node->kind == YamlNode::Kind::kList) return &parent.node->items.emplace_back();
    parent.has_key = false;
    return &parent.node->entries.back().value;
  }

  std::string_view text_;
  Placer placer_;
  YamlNode root_;
  std::vector<Open> open_;
  int nodes_ = 0;
};

// yaml-cpp ends the text at byte 4 and replaces bad UTF-8 silently, so both are refused before.
void require_plain_text(std::string_view text, const Placer& placer) {
  YAML::Mark mark;
  while (!text.empty()) {
    const auto c = static_cast<unsigned char>(text.front());
    const char32_t character = utf8_character(text);
    const bool control = character < 0x20 ? c != '\t' && c != '\n' && c != '\r'
                                          : character >= 0x7F && character < 0xA0;
    const std::size_t length = control ? 0 : utf8_length(text);
    if (length == 0) fail_at(placer(mark), "expected UTF-8 text without control characters");
    text.remove_prefix(length);
    mark.column = c == '\n' ? 0 : mark.column + 1;
    mark.line += c == '\n' ? 1 : 0;
  }
}

// Whether a tab is among the spaces before a line's text; the first line is 0.
bool is_tab_indented(std::string_view text, int line) {
  for (; line > 0; --line) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return false;
    text.remove_prefix(end + 1);
  }
  const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(0, begin).find('\t') != std::string_view::npos;
}

YamlNode parse(std::string_view text, const Placer& placer) {
  if (text.size() > kMaxYamlBytes) {
    fail_at(placer({}), "expected at most " + std::to_string(kMaxYamlBytes) + " bytes, got " +
                            std::to_string(text.size()));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  require_plain_text(text, placer);
  std::istringstream stream{std::string(text)};
  try {
    YAML::Parser parser(stream);
    TreeBuilder builder(text, placer);
    if (!parser.HandleNextDocument(builder)) return {.place = placer({})};
    TreeBuilder second(text, placer);
    if (parser.HandleNextDocument(second)) {
      fail_at(second.take().place, "expected one YAML document, got a second one");
    }
    return builder.take();
  } catch (const YAML::Exception& error) {
    fail_at(placer(error.mark), "not valid YAML: " + printable(error.msg) +
                                    (is_tab_indented(text, error.mark.line)
                                         ? " (a tab is in the indentation, which takes spaces only)"
                                         : ""));
  }
}

bool is_plain_word(std::string_view text) {
  constexpr std::string_view kNulls[] = {"", "~", "null", "Null", "NULL", "-", "--", "---", "..."};
  if (std::find(std::begin(kNulls), std::end(kNulls), text) != std::end(kNulls)) return false;
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '.' || c == '/' || c == '-' || c == '+';
  });
}

// Whether a reader may take the text for a number, a boolean, a date or nothing: YAML 1.2's core
// schema and the types of YAML 1.1 (https://yaml.org/type), which many still read, with a margin.
bool may_be_no_text(std::string_view text) {
  std::string word(text.substr(text.starts_with('+') || text.starts_with('-') ? 1 : 0));
  const std::size_t digit = word.starts_with('.') ? 1 : 0;
  if (digit < word.size() && word[digit] >= '0' && word[digit] <= '9') return true;
  for (char& c : word) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  constexpr std::string_view kWords[] = {"true", "false", "yes",  "no",   "on", "off",
                                         "y",    "n",     ".inf", ".nan", "._"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords);
}

// YAML 1.1 takes a number without a point for a text: 1e-08 becomes 1.0e-08.
std::string with_point(const std::string& text) {
  const std::size_t exponent = text.find_first_of("eE");
  if (exponent == std::string::npos || text.find('.') != std::string::npos || !parse_number(text)) {
    return text;
  }
  return text.substr(0, exponent) + ".0" + text.substr(exponent);
}

// YAML's escapes of a code point: "\x1b", "\u202e".
std::string escaped(char32_t character) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = character < 0x100 ? "\\x" : "\\u";
  for (int shift = character < 0x100 ? 4 : 12; shift >= 0; shift -= 4) {
    text += kHex[character >> shift & 15U];
  }
  return text;
}

std::string scalar_yaml(const std::string& text, bool is_text) {
  if (is_plain_word(text) && !(is_text && may_be_no_text(text))) {
    return is_text ? text : with_point(text);
  }
  std::string quoted = "\"";
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t length = std::max<std::size_t>(1, utf8_length(rest));
    const char32_t character = utf8_character(rest);
    if (is_control(character)) {
      quoted += escaped(character);
    } else {
      if (character == '"' || character == '\\') quoted += '\\';
      quoted += rest.substr(0, length);
    }
    rest.remove_prefix(length);
  }
  return quoted + '"';
}

bool fits_one_line(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kTable) return node.entries.empty();
  return std::all_of(node.items.begin(), node.items.end(), fits_one_line);
}

std::string one_line(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kTable) return "{}";
  if (node.kind == YamlNode::Kind::kNull) return "null";
  if (node.kind == YamlNode::Kind::kScalar) return scalar_yaml(node.text, node.quoted);
  std::vector<std::string> items;
  for (const YamlNode& item : node.items) items.push_back(one_line(item));
  std::string line = "[";
  line += join(items);
  return line += "]";
}

void emit_block(const YamlNode& node, const std::string& indent, std::string& out);

// Writes the value after "key:" or "-".
void emit_value(const YamlNode& node, const std::string& indent, std::string& out) {
  if (fits_one_line(node)) {
    out.append(" ").append(one_line(node)).append("\n");
  } else {
    out += "\n";
    emit_block(node, indent + "  ", out);
  }
}

// Lines that all start with `indent`.
void emit_block(const YamlNode& node, const std::string& indent, std::string& out) {
  for (const YamlEntry& entry : node.entries) {
    out += indent + scalar_yaml(entry.key, true) + ":";
    emit_value(entry.value, indent, out);
  }
  for (const YamlNode& item : node.items) {
    const std::size_t start = out.size();
    if (fits_one_line(item)) {
      out += indent + "- " + one_line(item) + "\n";
    } else {
      emit_block(item, indent + "  ", out);
      out[start + indent.size()] = '-';  // the first line's indentation makes room for the dash
    }
  }
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view key) {
  return const_cast<YamlNode*>(static_cast<const YamlNode*>(this)->find(key));
}

bool YamlNode::operator==(const YamlNode& other) const {
  return kind == other.kind && text == other.text && items == other.items &&
         std::equal(entries.begin(), entries.end(), other.entries.begin(), other.entries.end(),
                    [](const YamlEntry& a, const YamlEntry& b) {
                      return a.key == b.key && a.value == b.value;
                    });
}

YamlNode parse_yaml(std::string_view text, const std::string& source) {
  // yaml-cpp counts bytes, editors count characters. Of the line's bytes before `counted` so many
  // continue a character: a recipe may be one long line, so none is looked at for every value.
  int line = -1, counted = 0, continuing = 0;
  return parse(text, [=, &source](const YAML::Mark& mark) mutable {
    if (mark.line != line || mark.pos < counted) {
      line = mark.line;
      counted = std::max(0, mark.pos - mark.column);
      continuing = 0;
    }
    for (; counted < mark.pos; ++counted) {
      const auto at = static_cast<std::size_t>(counted);
      continuing += at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
    }
    return source + ":" + std::to_string(mark.line + 1) + ":" +
           std::to_string(mark.column - continuing + 1);
  });
}

YamlNode parse_yaml_at(std::string_view text, const std::string& place) {
  return parse(text, [&place](const YAML::Mark&) { return place; });
}

std::string to_yaml(const YamlNode& node) {
  if (fits_one_line(node)) return one_line(node) + "\n";
  std::string out;
  emit_block(node, "", out);
  return out;
}

void fail_at(const std::string& place, const std::string& message) {
  // An override's place is its key: "--set train.loss".
  const std::size_t colon = message.find(": ");
  const bool twice = colon != std::string::npos && place == "--set " + message.substr(0, colon);
  throw InputError(place + ": " + (twice ? message.substr(colon + 2) : message));
}

std::string describe_value(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return (node.quoted ? "the string " : "") + quote_for_message(node.text);
    case YamlNode::Kind::kList:
      return "a list";
    case YamlNode::Kind::kTable:
      return "a table";
  }
  return "";
}

}  // namespace steelyard
