#include "steelyard/framework/data/tables/table_columns.h"

#include <algorithm>
#include <set>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/suggest.h"

namespace steelyard {
namespace {

// f(), and what it says is wrong with the line's place.
template <typename F>
auto at_line(const CsvReader& reader, std::int64_t line, const F& f) {
  try {
    return f();
  } catch (const InputError& error) {
    reader.fail(line, error.what());
  }
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
  if (is_among(options.categories, name)) {
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

}  // namespace

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
  std::vector<std::string_view> fields;
  for (const std::size_t place : places) fields.push_back(row.fields[place]);
  at_line(reader, row.line, [&] { encode_row(columns_, missing_, fields, to); });
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
    const bool known = is_among(options.target, name) || is_among(options.ignore, name) ||
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
    if (!is_among(options.target, name) && !is_among(options.ignore, name)) used.push_back(i);
  }
  if (used.empty()) {
    reader.fail(1, options.target.empty() ? "expected a column that is not ignored"
                                          : "expected a column in addition to the target");
  }
  std::vector<ColumnContent> contents(header.names().size());
  std::vector<bool> words(header.names().size());
  for (const std::size_t i : used) words[i] = is_among(options.categories, header.names()[i]);
  CsvRecord row;
  std::int64_t rows = 0;
  for (; next_row(reader, header, row); ++rows) {
    for (const std::size_t i : used) {
      const std::string& text = row.fields[i];
      if (words[i]) {
        contents[i].categories.insert(at_line(reader, row.line, [&] {
          return category_in_field(header.names()[i], text, options.missing);
        }));
      } else if (!is_among(options.missing, text)) {
        const auto value = number_in_field(text);
        if (!value) reader.fail(row.line, no_number_text(header.names()[i], text));
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
