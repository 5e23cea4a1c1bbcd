#include "steelyard/framework/data/tables/table_columns.h"

#include <algorithm>
#include <array>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/float_range.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

// Advice about fields that should be numbers.
constexpr const char* kAdvice =
    " (data.table.categories names columns of words, data.table.missing what stands for a missing "
    "value)";
constexpr const char* kBeyondFloat32 = " (float32 would round it: subtract an offset in the file)";

// Spaces around them do not count.
bool contains(const std::vector<std::string>& words, std::string_view word) {
  return std::any_of(words.begin(), words.end(),
                     [&](const std::string& w) { return trimmed(w) == trimmed(word); });
}

// The category of a field; "" is that of missing values. Throws InputError for an empty field that
// nobody has named.
std::string category_of(const CsvReader& reader, std::int64_t line, const std::string& column,
                        const std::string& text, const std::vector<std::string>& missing) {
  if (is_missing(missing, text)) return "";
  const std::string_view category = trimmed(text);
  if (!category.empty()) return std::string(category);
  reader.fail(line, "column " + quoted_field(column) +
                        ": the field is empty (with data.table.missing: [\"\"] that is a category "
                        "of its own)");
}

float feature_of(const CsvReader& reader, std::int64_t line, const TableColumn& column,
                 const std::string& text, bool is_missing) {
  if (is_missing && column.missing) return *column.missing;
  if (const auto value = number_in_field(text); value && !is_missing) return *value;
  fail_no_number(reader, line, column.name, text, kAdvice);
}

// What a column of the training set holds.
struct ColumnContent {
  std::set<std::string> categories;
  double sum = 0;
  std::int64_t numbers = 0;
};

TableColumn column_of(const CsvReader& reader, const std::string& name,
                      const ColumnContent& content, const TableOptions& options) {
  TableColumn column{name};
  if (contains(options.categories, name)) {
    std::set<std::string> categories = content.categories;
    const bool has_missing = categories.erase("") > 0;  // a category of its own, the first
    column.categories = sorted_classes({categories.begin(), categories.end()},
                                       reader.name() + ": column " + quoted_field(name));
    if (has_missing) column.categories.insert(column.categories.begin(), "");
    return column;
  }
  if (content.numbers == 0) reader.fail(1, "column " + quoted_field(name) + " holds no number");
  if (!options.missing.empty()) {
    column.missing = static_cast<float>(content.sum / static_cast<double>(content.numbers));
  }
  return column;
}

// Every double from 2^53 on is whole, and may be another number than the digits say.
bool is_whole_and_rounded(std::string_view number, double value) {
  constexpr double kAllAreWhole = 0x1p53;
  if (std::abs(value) < kAllAreWhole) return steelyard::is_whole_and_rounded(value);
  if (number.find_first_of(".eE") != std::string_view::npos) return false;
  number = number.substr(number.find_first_of("123456789"));
  const std::string_view digits = number.substr(0, number.find_last_of("0123456789") + 1);
  std::array<char, 64> held{};
  const char* end = std::to_chars(held.begin(), held.end(), std::abs(static_cast<float>(value)),
                                  std::chars_format::fixed, 0)
                        .ptr;
  return digits.find_last_not_of('0') >= FLT_DIG &&
         digits != std::string_view(held.data(), static_cast<std::size_t>(end - held.data()));
}

// A field without spaces around it and without a plus sign.
std::string_view bare_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  return text;
}

// Nothing unless the field is a number that float32 can come near to.
std::optional<double> finite_in_field(std::string_view text) {
  text = bare_number(text);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() || error == std::errc::result_out_of_range;
  // Too small or too large for a double, which from_chars() does not tell apart.
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(text).c_str(), nullptr);
  const bool holds = is_number && stop == end && !text.empty() &&
                     std::abs(value) <= std::numeric_limits<float>::max();
  return holds ? std::optional(value) : std::nullopt;
}

}  // namespace

std::string quoted_field(const std::string& text) {
  return std::string("'").append(printable(text, 60)).append("'");
}

bool is_missing(const std::vector<std::string>& words, std::string_view field) {
  return contains(words, field);
}

std::optional<float> number_in_field(std::string_view text) {
  const auto value = finite_in_field(text);
  if (!value || is_whole_and_rounded(text, *value)) return std::nullopt;
  return static_cast<float>(*value);
}

void fail_no_number(const CsvReader& reader, std::int64_t line, const std::string& column,
                    const std::string& text, const std::string& advice) {
  const auto value = finite_in_field(text);
  const bool is_rounded = value && is_whole_and_rounded(text, *value);
  reader.fail(line, "column " + quoted_field(column) + ": expected a finite number, got " +
                        quoted_field(text) + (is_rounded ? kBeyondFloat32 : advice));
}

TableHeader::TableHeader(CsvReader& reader) {
  if (!reader.next(record_)) reader.fail(1, "expected a line with the names of the columns");
  constexpr std::size_t kMostColumns = 65536;
  if (names().size() > kMostColumns) {
    reader.fail(1, "expected at most " + std::to_string(kMostColumns) + " columns, got " +
                       std::to_string(names().size()));
  }
  for (std::string& name : record_.fields) name = trimmed(name);
  for (std::size_t i = 0; i < names().size(); ++i) {
    if (!places_.emplace(names()[i], i).second) {
      reader.fail(record_.line, "two columns have the name " + quoted_field(names()[i]));
    }
  }
}

std::size_t TableHeader::place(const CsvReader& reader, const std::string& name,
                               const std::string& key) const {
  const auto found = places_.find(std::string(trimmed(name)));
  if (found != places_.end()) return found->second;
  const std::string nearest = nearest_word(name, names());
  std::string hint = nearest.empty() ? "" : " (did you mean " + quoted_field(nearest) + "?)";
  if (names().size() == 1) {
    hint = " (the line has one column: data.table.delimiter says what separates them)";
  }
  reader.fail(record_.line, "no column " + quoted_field(name) + ", which " + key + " names" + hint);
}

void require_length(const CsvReader& reader, const TableHeader& header, const CsvRecord& row) {
  if (row.fields.size() == header.names().size()) return;
  reader.fail(row.line, "expected " + std::to_string(header.names().size()) +
                            " fields as in the first line, got " +
                            std::to_string(row.fields.size()));
}

bool next_row(CsvReader& reader, const TableHeader& header, CsvRecord& row) {
  if (!reader.next(row)) return false;
  require_length(reader, header, row);
  return true;
}

TableEncoder::TableEncoder(std::vector<TableColumn> columns, std::vector<std::string> missing)
    : columns_(std::move(columns)),
      missing_(std::move(missing)),
      features_(feature_count(columns_)) {}

std::vector<std::size_t> TableEncoder::places(const CsvReader& reader,
                                              const TableHeader& header) const {
  std::vector<std::size_t> places;
  for (const TableColumn& column : columns_) {
    places.push_back(header.place(reader, column.name, "the training set"));
  }
  return places;
}

void TableEncoder::encode(const CsvReader& reader, const CsvRecord& row,
                          const std::vector<std::size_t>& places, float* to) const {
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const TableColumn& column = columns_[i];
    const std::string& text = row.fields[places[i]];
    const bool missing = is_missing(missing_, text);
    if (column.categories.empty()) {
      *to++ = feature_of(reader, row.line, column, text, missing);
      continue;
    }
    const std::int64_t category =
        label_of(column.categories, category_of(reader, row.line, column.name, text, missing_));
    if (category < 0) {
      reader.fail(row.line, "column " + quoted_field(column.name) +
                                ": the training set has no category " +
                                (missing ? "for missing values" : quoted_field(text)));
    }
    std::fill_n(to, column.categories.size(), 0.0F);
    to[category] = 1;
    to += column.categories.size();
  }
}

void require_one_role_each(const TableOptions& options, std::optional<TargetKind> kind,
                           bool labels) {
  std::map<std::string, const char*> roles;
  const auto add = [&](const std::vector<std::string>& columns, const char* role) {
    for (const std::string& column : columns) {
      const auto [earlier, added] = roles.emplace(trimmed(column), role);
      if (added) continue;
      throw InputError("the column " + quoted_field(column) + " is in " + earlier->second +
                       " and " +
                       (earlier->second == role ? "there again" : std::string("in ") + role));
    }
  };
  add(options.target, "data.table.target");
  add(options.categories, "data.table.categories");
  add(options.ignore, "data.table.ignore");
  if (!labels) return;
  if (options.target.size() == 1 || options.regression || kind == TargetKind::kMarks) return;
  throw InputError("data.table.target: expected one column, got " +
                   std::to_string(options.target.size()) +
                   " (several are numbers, with regression: true, or labels, with the loss "
                   "binary_cross_entropy)");
}

void require_known_columns(const CsvReader& reader, const TableHeader& header,
                           const std::vector<TableColumn>& columns, const TableOptions& options) {
  for (const std::string& name : header.names()) {
    const bool known = contains(options.target, name) || contains(options.ignore, name) ||
                       std::any_of(columns.begin(), columns.end(),
                                   [&](const TableColumn& c) { return trimmed(c.name) == name; });
    if (!known) {
      reader.fail(1, "the training set has no column " + quoted_field(name) +
                         " (remove it here, or train with it in data.table.ignore)");
    }
  }
}

std::vector<TableColumn> learned_columns(const std::filesystem::path& path,
                                         const TableOptions& options) {
  CsvReader reader(path, delimiter_of(path, options.delimiter));
  const TableHeader header(reader);
  for (const std::string& name : options.categories)
    header.place(reader, name, "data.table.categories");
  for (const std::string& name : options.ignore) header.place(reader, name, "data.table.ignore");
  for (const std::string& name : options.target) header.place(reader, name, "data.table.target");
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < header.names().size(); ++i) {
    const std::string& name = header.names()[i];
    if (!contains(options.target, name) && !contains(options.ignore, name)) used.push_back(i);
  }
  if (used.empty()) {
    reader.fail(1, options.target.empty() ? "expected a column that is not ignored"
                                          : "expected a column in addition to the target");
  }
  std::vector<ColumnContent> contents(header.names().size());
  std::vector<bool> words(header.names().size());
  for (const std::size_t i : used) words[i] = contains(options.categories, header.names()[i]);
  CsvRecord row;
  std::int64_t rows = 0;
  for (; next_row(reader, header, row); ++rows) {
    for (const std::size_t i : used) {
      const std::string& text = row.fields[i];
      if (words[i]) {
        contents[i].categories.insert(
            category_of(reader, row.line, header.names()[i], text, options.missing));
      } else if (!is_missing(options.missing, text)) {
        const auto value = number_in_field(text);
        if (!value) {
          fail_no_number(reader, row.line, header.names()[i], text, kAdvice);
        }
        contents[i].sum += static_cast<double>(*value);
        ++contents[i].numbers;
      }
    }
  }
  if (rows == 0) reader.fail(1, kNoRows);
  std::vector<TableColumn> columns;
  for (const std::size_t i : used) {
    columns.push_back(column_of(reader, header.names()[i], contents[i], options));
  }
  return columns;
}

}  // namespace steelyard
