#include "steelyard/framework/data/tables/table_dataset.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <set>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/error.h"
#include "steelyard/framework/files.h"
#include "steelyard/framework/folders.h"
#include "steelyard/framework/suggest.h"

namespace steelyard {
namespace {

constexpr const char* kNoRows = "expected rows beneath the names of the columns";

bool contains(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string quoted(const std::string& text) {
  return std::string("'").append(printable(text, 60)).append("'");
}

// Without spaces around it, which tables for people have.
std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(' ') - begin + 1);
}

// A finite number that a float holds, rounded to it, or nothing.
std::optional<float> number_in(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool is_number = error == std::errc() || error == std::errc::result_out_of_range;
  // Too small or too large for a double, which from_chars() does not tell apart.
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(text).c_str(), nullptr);
  const bool holds = is_number && stop == end && !text.empty() &&
                     std::abs(value) <= std::numeric_limits<float>::max();
  return holds ? std::optional(static_cast<float>(value)) : std::nullopt;
}

// The columns of a file by their names.
class Header {
 public:
  explicit Header(CsvReader& reader) {
    if (!reader.next(record_)) reader.fail(1, "expected a line with the names of the columns");
    constexpr std::size_t kMostColumns = 65536;
    if (names().size() > kMostColumns) {
      reader.fail(1, "expected at most " + std::to_string(kMostColumns) + " columns, got " +
                         std::to_string(names().size()));
    }
    for (std::size_t i = 0; i < names().size(); ++i) {
      if (!places_.emplace(names()[i], i).second) {
        reader.fail(record_.line, "two columns have the name " + quoted(names()[i]));
      }
    }
  }

  const std::vector<std::string>& names() const { return record_.fields; }
  bool has(const std::string& name) const { return places_.contains(name); }
  // Throws InputError where there is no such column; `key` asks for it.
  std::size_t place(const CsvReader& reader, const std::string& name,
                    const std::string& key) const {
    const auto found = places_.find(name);
    if (found != places_.end()) return found->second;
    const std::string nearest = nearest_word(name, names());
    reader.fail(record_.line,
                "no column " + quoted(name) + ", which " + key + " names" +
                    (nearest.empty() ? "" : " (did you mean " + quoted(nearest) + "?)"));
  }

 private:
  CsvRecord record_;
  std::map<std::string, std::size_t> places_;
};

// The next row, of the header's length.
bool next_row(CsvReader& reader, const Header& header, CsvRecord& row) {
  if (!reader.next(row)) return false;
  if (row.fields.size() != header.names().size()) {
    reader.fail(row.line, "expected " + std::to_string(header.names().size()) +
                              " fields as in the first line, got " +
                              std::to_string(row.fields.size()));
  }
  return true;
}

[[noreturn]] void fail_no_number(const CsvReader& reader, std::int64_t line,
                                 const std::string& column, const std::string& text,
                                 const std::string& advice) {
  reader.fail(line, "column " + quoted(column) + ": expected a finite number, got " + quoted(text) +
                        advice);
}

// The category of a field; "" is that of missing values. Throws InputError for an empty field that
// nobody has named.
std::string category_of(const CsvReader& reader, std::int64_t line, const std::string& column,
                        const std::string& text, const std::vector<std::string>& missing) {
  if (contains(missing, text)) return "";
  if (!text.empty()) return text;
  reader.fail(line, "column " + quoted(column) +
                        ": the field is empty (with data.table.missing: [\"\"] that is a category "
                        "of its own)");
}

// The features of a row.
class Encoder {
 public:
  Encoder(std::vector<TableColumn> columns, std::vector<std::string> missing)
      : columns_(std::move(columns)),
        missing_(std::move(missing)),
        features_(feature_count(columns_)) {}

  std::int64_t features() const { return features_; }
  const std::vector<TableColumn>& columns() const { return columns_; }

  // places[i]: of column i in the row.
  void encode(const CsvReader& reader, const CsvRecord& row, const std::vector<std::size_t>& places,
              float* to) const {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      const TableColumn& column = columns_[i];
      const std::string& text = row.fields[places[i]];
      const bool is_missing = contains(missing_, text);
      if (column.categories.empty()) {
        *to++ = number(reader, row.line, column, text, is_missing);
        continue;
      }
      const std::int64_t category =
          label_of(column.categories, category_of(reader, row.line, column.name, text, missing_));
      if (category < 0) {
        reader.fail(row.line, "column " + quoted(column.name) +
                                  ": the training set has no category " +
                                  (is_missing ? "for missing values" : quoted(text)));
      }
      std::fill_n(to, column.categories.size(), 0.0F);
      to[category] = 1;
      to += column.categories.size();
    }
  }

 private:
  static float number(const CsvReader& reader, std::int64_t line, const TableColumn& column,
                      const std::string& text, bool is_missing) {
    if (is_missing && column.missing) return *column.missing;
    if (const auto value = number_in(text); value && !is_missing) return *value;
    fail_no_number(reader, line, column.name, text,
                   " (data.table.categories names columns of words, data.table.missing what "
                   "stands for a missing value)");
  }

  std::vector<TableColumn> columns_;
  std::vector<std::string> missing_;
  std::int64_t features_;
};

std::vector<std::size_t> places_of(const CsvReader& reader, const Header& header,
                                   const std::vector<TableColumn>& columns) {
  std::vector<std::size_t> places;
  for (const TableColumn& column : columns) {
    places.push_back(header.place(reader, column.name, "the training set"));
  }
  return places;
}

// Columns that nobody speaks of must not be left out silently.
void require_known_columns(const CsvReader& reader, const Header& header,
                           const std::vector<TableColumn>& columns, const TableOptions& options) {
  for (const std::string& name : header.names()) {
    const bool known = contains(options.target, name) || contains(options.ignore, name) ||
                       std::any_of(columns.begin(), columns.end(),
                                   [&](const TableColumn& c) { return c.name == name; });
    if (!known) {
      reader.fail(1, "the training set has no column " + quoted(name) +
                         " (data.table.ignore leaves columns out)");
    }
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
  if (contains(options.categories, name)) {
    std::set<std::string> categories = content.categories;
    const bool has_missing = categories.erase("") > 0;  // a category of its own, the first
    column.categories = sorted_classes({categories.begin(), categories.end()},
                                       reader.name() + ": column " + quoted(name));
    if (has_missing) column.categories.insert(column.categories.begin(), "");
    return column;
  }
  if (content.numbers == 0) reader.fail(1, "column " + quoted(name) + " holds no number");
  if (!options.missing.empty()) {
    column.missing = static_cast<float>(content.sum / static_cast<double>(content.numbers));
  }
  return column;
}

// One pass over the training set: its columns, without the target's.
std::vector<TableColumn> learned_columns(const std::filesystem::path& path,
                                         const TableOptions& options) {
  CsvReader reader(path, delimiter_of(path, options.delimiter));
  const Header header(reader);
  for (const std::string& name : options.categories)
    header.place(reader, name, "data.table.categories");
  for (const std::string& name : options.ignore) header.place(reader, name, "data.table.ignore");
  for (const std::string& name : options.target) header.place(reader, name, "data.table.target");
  std::vector<std::size_t> used;
  for (std::size_t i = 0; i < header.names().size(); ++i) {
    const std::string& name = header.names()[i];
    if (!contains(options.target, name) && !contains(options.ignore, name)) used.push_back(i);
  }
  if (used.empty()) reader.fail(1, "expected a column beside the target");
  std::vector<ColumnContent> contents(header.names().size());
  std::vector<bool> words(header.names().size());
  for (const std::size_t i : used) words[i] = contains(options.categories, header.names()[i]);
  CsvRecord row;
  std::int64_t rows = 0;
  for (; next_row(reader, header, row); ++rows) {
    for (const std::size_t i : used) {
      const std::string& text = row.fields[i];
      const bool is_missing = contains(options.missing, text);
      if (words[i]) {
        contents[i].categories.insert(
            category_of(reader, row.line, header.names()[i], text, options.missing));
      } else if (!is_missing) {
        const auto value = number_in(text);
        if (!value) {
          fail_no_number(reader, row.line, header.names()[i], text,
                         " (data.table.categories names columns of words, data.table.missing what "
                         "stands for a missing value)");
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

// Rows of a file that were looked at once, and are read again when they are asked for.
class TableSamples : public SampleSource {
 public:
  TableSamples(const std::filesystem::path& path, char delimiter, Encoder encoder)
      : reader_(path, delimiter),
        header_(reader_),
        encoder_(std::move(encoder)),
        places_(places_of(reader_, header_, encoder_.columns())),
        shape_{encoder_.features()} {
    constexpr std::int64_t kMostFeatures = std::int64_t{1} << 24;
    if (shape_[0] > kMostFeatures) {
      reader_.fail(1, "expected at most " + std::to_string(kMostFeatures) + " features, got " +
                          std::to_string(shape_[0]));
    }
  }

  // Looks at all rows; `visit` gets each.
  template <typename Visit>
  void scan(const Visit& visit) {
    CsvRecord row;
    std::vector<float> features(static_cast<std::size_t>(shape_[0]));
    while (next_row(reader_, header_, row)) {
      encoder_.encode(reader_, row, places_, features.data());
      rows_.push_back({row.begin, static_cast<std::uint32_t>(row.end - row.begin),
                       static_cast<std::uint32_t>(row.line)});
      visit(row);
    }
    if (rows_.empty()) reader_.fail(1, kNoRows);
  }

  const CsvReader& reader() const { return reader_; }
  const Header& header() const { return header_; }
  std::int64_t size() const override { return std::ssize(rows_); }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  bool decodes() const override { return true; }
  std::string name(std::int64_t sample) const override {
    return reader_.name() + ":" + std::to_string(row_at(sample).line);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    const Row& place = row_at(sample);
    CsvRecord row = reader_.at(place.begin, place.begin + place.bytes);
    row.line = place.line;
    if (row.fields.size() != header_.names().size()) {
      reader_.fail(row.line, "the file has changed since it was opened");
    }
    encoder_.encode(reader_, row, places_, static_cast<float*>(to));
  }

 private:
  struct Row {
    std::uint64_t begin = 0;
    std::uint32_t bytes = 0;
    std::uint32_t line = 0;  // for messages
  };
  const Row& row_at(std::int64_t sample) const {
    return rows_.at(static_cast<std::size_t>(sample));
  }

  CsvReader reader_;
  Header header_;
  Encoder encoder_;
  std::vector<std::size_t> places_;
  Shape shape_;
  std::vector<Row> rows_;
};

Tensor targets_of(std::vector<float> values, std::int64_t columns) {
  const auto rows = std::ssize(values) / columns;
  Tensor targets = Tensor::empty({rows, columns});
  std::copy(values.begin(), values.end(), targets.data<float>());
  return targets;
}

// Targets that are numbers, a column for each; marks lie within [0, 1].
Dataset numbers_of(const std::shared_ptr<TableSamples>& samples, const TableOptions& options,
                   bool marks) {
  std::vector<std::size_t> places;
  for (const std::string& name : options.target) {
    places.push_back(samples->header().place(samples->reader(), name, "data.table.target"));
  }
  std::vector<float> values;
  samples->scan([&](const CsvRecord& row) {
    for (std::size_t i = 0; i < places.size(); ++i) {
      const std::string& text = row.fields[places[i]];
      const auto value = number_in(text);
      if (!value) fail_no_number(samples->reader(), row.line, options.target[i], text, "");
      if (marks && (*value < 0 || *value > 1)) {
        samples->reader().fail(row.line, "column " + quoted(options.target[i]) +
                                             ": expected a mark from 0 to 1, got " + quoted(text));
      }
      values.push_back(*value);
    }
  });
  return {{}, targets_of(std::move(values), std::ssize(places)), 0, samples, {}};
}

// Classes are those of `known`, or those that the rows have.
Dataset classes_of(const std::shared_ptr<TableSamples>& samples, const TableOptions& options,
                   const std::vector<std::string>& known, const std::string& known_source) {
  const CsvReader& reader = samples->reader();
  const std::size_t place = samples->header().place(reader, options.target[0], "data.table.target");
  std::map<std::string, std::int64_t> numbers;  // in order of appearance
  std::vector<std::int64_t> found;
  samples->scan([&](const CsvRecord& row) {
    const std::string& name = row.fields[place];
    if (name.empty() || contains(options.missing, name)) {
      reader.fail(row.line, "column " + quoted(options.target[0]) + ": the class is missing");
    }
    if (!known.empty() && !contains(known, name)) {
      reader.fail(row.line, "column " + quoted(options.target[0]) + ": " + known_source +
                                " has no class " + quoted(name));
    }
    found.push_back(numbers.emplace(name, std::ssize(numbers)).first->second);
  });
  std::vector<std::string> classes = known;
  if (known.empty()) {
    for (const auto& [name, number] : numbers) classes.push_back(name);
    classes = sorted_classes(std::move(classes), reader.name());
  }
  std::vector<std::int64_t> labels(numbers.size());
  for (const auto& [name, number] : numbers) {
    labels[static_cast<std::size_t>(number)] = label_of(classes, name);
  }
  Tensor targets = Tensor::empty({std::ssize(found)}, DType::kI64);
  std::transform(found.begin(), found.end(), targets.data<std::int64_t>(),
                 [&](std::int64_t number) { return labels[static_cast<std::size_t>(number)]; });
  return {{}, targets, std::ssize(classes), samples, {.classes = classes}};
}

// Labels or texts of one column.
Dataset texts_of(const std::shared_ptr<TableSamples>& samples, const TableOptions& options,
                 const TargetOptions& targets, const std::vector<std::string>& known) {
  const CsvReader& reader = samples->reader();
  const std::size_t place = samples->header().place(reader, options.target[0], "data.table.target");
  std::vector<std::string> texts;
  samples->scan([&](const CsvRecord& row) {
    const std::string& text = row.fields[place];
    texts.push_back(contains(options.missing, text) ? "" : text);
  });
  Dataset dataset;
  dataset.source = samples;
  set_targets(dataset, texts, targets, known, reader.name());
  return dataset;
}

Dataset targets_of(const std::shared_ptr<TableSamples>& samples, const DatasetRequest& request,
                   const std::vector<std::string>& known) {
  const TableOptions& options = *request.table;
  const bool marks = request.targets.kind == TargetKind::kMarks;
  const bool numbers = options.regression || (marks && options.target.size() > 1);
  if (!numbers && request.targets.may_be_empty()) {
    return texts_of(samples, options, request.targets, known);
  }
  if (!numbers) return classes_of(samples, options, known, request.targets.names_source);
  Dataset dataset = numbers_of(samples, options, marks);
  if (marks && !request.targets.names.empty()) {
    throw InputError(
        request.targets.names_source +
        ": the columns of data.table.target are the labels, expected no data.class_names");
  }
  if (marks) dataset.names.classes = options.target;
  return dataset;
}

Dataset load_file(const std::filesystem::path& path, const DatasetRequest& request,
                  const DatasetNames& names) {
  const TableOptions& options = *request.table;
  auto samples = std::make_shared<TableSamples>(path, delimiter_of(path, options.delimiter),
                                                Encoder(names.columns, options.missing));
  require_known_columns(samples->reader(), samples->header(), names.columns, options);
  Dataset dataset = targets_of(samples, request, names.classes);
  dataset.names.columns = names.columns;
  return dataset;
}

// A column is a target, of categories or ignored; it may be none of these.
void require_one_role_each(const TableOptions& options, std::optional<TargetKind> kind) {
  std::map<std::string, const char*> roles;
  const auto add = [&](const std::vector<std::string>& columns, const char* role) {
    for (const std::string& column : columns) {
      const auto [earlier, added] = roles.emplace(column, role);
      if (added) continue;
      throw InputError("the column " + quoted(column) + " is in " + earlier->second + " and " +
                       (earlier->second == role ? "there again" : std::string("in ") + role));
    }
  };
  add(options.target, "data.table.target");
  add(options.categories, "data.table.categories");
  add(options.ignore, "data.table.ignore");
  if (options.target.size() == 1 || options.regression || kind == TargetKind::kMarks) return;
  throw InputError("data.table.target: expected one column, got " +
                   std::to_string(options.target.size()) +
                   " (several are numbers, with regression: true, or labels, with the loss "
                   "binary_cross_entropy)");
}

// train.csv or train.tsv.
std::filesystem::path split_path(const std::filesystem::path& folder, const std::string& split) {
  const std::filesystem::path found =
      only_one_of(folder, {split + ".csv", split + ".tsv", split + ".tab"});
  if (!found.empty()) return found;
  throw InputError(printable(folder.string()) + ": expected a table " + split + ".csv or " + split +
                   ".tsv");
}

}  // namespace

DatasetSplits load_table(const DatasetRequest& request) {
  if (!request.table || request.table->target.empty()) {
    throw InputError("dataset 'table' needs data.table.target, the column to learn");
  }
  const TableOptions& options = *request.table;
  require_one_role_each(options, request.targets.kind);
  const bool folder = is_folder(request.path);
  const auto train_path = [&] { return folder ? split_path(request.path, "train") : request.path; };
  const bool test_only = folder && request.parts == DatasetParts::kTest && request.names;
  DatasetNames names = request.names.value_or(DatasetNames{.classes = request.targets.names});
  DatasetSplits splits;
  if (!request.names) names.columns = learned_columns(train_path(), options);
  if (!test_only) {
    splits.train = load_file(train_path(), request, names);
    names.classes = splits.train.names.classes;
  }
  if (folder) splits.test = load_file(split_path(request.path, "test"), request, names);
  return splits;
}

std::shared_ptr<const SampleSource> table_features(const std::filesystem::path& path,
                                                   const TableOptions& options,
                                                   const DatasetNames& names) {
  auto samples = std::make_shared<TableSamples>(path, delimiter_of(path, options.delimiter),
                                                Encoder(names.columns, options.missing));
  require_known_columns(samples->reader(), samples->header(), names.columns, options);
  samples->scan([](const CsvRecord&) {});
  return samples;
}

}  // namespace steelyard
