#include "steelyard/framework/data/tables/table_dataset.h"

#include <algorithm>
#include <map>

#include "steelyard/framework/data/class_names.h"
#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/data/tables/table_columns.h"
#include "steelyard/framework/files/files.h"
#include "steelyard/framework/files/folders.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

// Rows of a file that were looked at once, and are read again when they are asked for.
class TableSamples : public SampleSource {
 public:
  TableSamples(const std::filesystem::path& path, char delimiter, TableEncoder encoder)
      : reader_(path, delimiter),
        header_(reader_),
        encoder_(std::move(encoder)),
        places_(encoder_.places(reader_, header_)),
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
      add(row);
      visit(row);
    }
    if (rows_.empty()) reader_.fail(1, kNoRows);
  }

  // Only finds all rows: reading one says what is wrong with it.
  void find_rows() {
    CsvRecord row;
    while (reader_.next_or_line(row)) add(row);
    if (rows_.empty()) reader_.fail(1, kNoRows);
  }

  const CsvReader& reader() const { return reader_; }
  const TableHeader& header() const { return header_; }
  std::int64_t size() const override { return std::ssize(rows_); }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return shape_; }
  bool decodes() const override { return true; }
  std::string name(std::int64_t sample) const override {
    return reader_.name() + ":" + std::to_string(row_at(sample).line);
  }
  std::string raw_name(std::int64_t sample) const override {
    return reader_.path().string() + ":" + std::to_string(row_at(sample).line);
  }

  void read(std::int64_t sample, Rng* /*random*/, void* to) const override {
    const Row& place = row_at(sample);
    const CsvRecord row = reader_.at(place.begin, place.begin + place.bytes, place.line);
    require_length(reader_, header_, row);
    encoder_.encode(reader_, row, places_, static_cast<float*>(to));
  }

 private:
  struct Row {
    std::uint64_t begin = 0;
    std::uint32_t bytes = 0;
    std::uint32_t line = 0;  // for messages
  };
  void add(const CsvRecord& row) {
    rows_.push_back({row.begin, static_cast<std::uint32_t>(row.end - row.begin),
                     static_cast<std::uint32_t>(row.line)});
  }
  const Row& row_at(std::int64_t sample) const {
    return rows_.at(static_cast<std::size_t>(sample));
  }

  CsvReader reader_;
  TableHeader header_;
  TableEncoder encoder_;
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

[[noreturn]] void fail_missing(const CsvReader& reader, std::int64_t line,
                               const std::string& column, const std::string& what) {
  reader.fail(line, "column " + quoted_field(column) + ": the " + what + " is missing");
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
      if (is_among(options.missing, text)) {
        fail_missing(samples->reader(), row.line, options.target[i], "target");
      }
      const auto value = number_in_field(text);
      if (!value) samples->reader().fail(row.line, no_number_text(options.target[i], text, ""));
      if (marks && (*value < 0 || *value > 1)) {
        samples->reader().fail(row.line, "column " + quoted_field(options.target[i]) +
                                             ": expected a mark from 0 to 1, got " +
                                             quoted_field(text));
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
    const std::string name(trimmed(row.fields[place]));
    if (name.empty() || is_among(options.missing, name)) {
      fail_missing(reader, row.line, options.target[0], "class");
    }
    if (!known.empty() && label_of(known, name) < 0) {
      reader.fail(row.line, "column " + quoted_field(options.target[0]) + ": " + known_source +
                                " has no class " + quoted_field(name));
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

// Labels or texts of one column; an empty field has none.
Dataset texts_of(const std::shared_ptr<TableSamples>& samples, const TableOptions& options,
                 const TargetOptions& targets, const std::vector<std::string>& known) {
  const CsvReader& reader = samples->reader();
  const std::size_t place = samples->header().place(reader, options.target[0], "data.table.target");
  std::vector<std::string> texts;
  samples->scan([&](const CsvRecord& row) {
    const std::string& text = row.fields[place];
    // Spaces alone are a text, even if an empty field is a missing value.
    const bool has_characters = text.find_first_not_of(' ') != std::string::npos;
    if (has_characters && is_among(options.missing, text)) {
      fail_missing(reader, row.line, options.target[0], "target");
    }
    texts.push_back(text);
  });
  Dataset dataset;
  dataset.source = samples;
  set_targets(dataset, texts, targets, known, {reader.name(), [&](std::size_t i) {
                                                 return samples->name(static_cast<std::int64_t>(i));
                                               }});
  return dataset;
}

Dataset targets_of(const std::shared_ptr<TableSamples>& samples, const DatasetRequest& request,
                   const std::vector<std::string>& known) {
  if (!request.labels) {
    samples->scan([](const CsvRecord&) {});
    Dataset dataset;
    dataset.source = samples;
    drop_targets(dataset);
    return dataset;
  }
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
        ": expected no data.class_names, the columns of data.table.target are the labels");
  }
  if (marks) dataset.names.classes = options.target;
  return dataset;
}

Dataset load_file(const std::filesystem::path& path, const DatasetRequest& request,
                  const DatasetNames& names) {
  const TableOptions options = request.table.value_or(TableOptions{});
  auto samples = std::make_shared<TableSamples>(path, delimiter_of(path, options.delimiter),
                                                TableEncoder(names.columns, options.missing));
  require_known_columns(samples->reader(), samples->header(), names.columns, options);
  Dataset dataset = targets_of(samples, request, names.classes);
  dataset.names.columns = names.columns;
  return dataset;
}

// train.csv or train.tsv; empty where neither is there.
std::filesystem::path find_split(const std::filesystem::path& folder, const std::string& split) {
  return only_one_of(folder, {split + ".csv", split + ".tsv", split + ".tab"});
}

std::filesystem::path split_path(const std::filesystem::path& folder, const std::string& split) {
  const std::filesystem::path found = find_split(folder, split);
  if (!found.empty()) return found;
  throw InputError(printable(folder.string()) + ": expected a table " + split + ".csv or " + split +
                   ".tsv" + (split == "test" ? kOrTestAside : ""));
}

}  // namespace

DatasetSplits load_table(const DatasetRequest& request) {
  if (request.labels && (!request.table || request.table->target.empty())) {
    throw InputError("dataset 'table' needs data.table.target, the column to learn");
  }
  const TableOptions options = request.table.value_or(TableOptions{});
  require_one_role_each(options, request.targets.kind, request.labels);
  const bool folder = is_folder(request.path);
  const auto train_path = [&] { return folder ? split_path(request.path, "train") : request.path; };
  const bool has_test = folder && !find_split(request.path, "test").empty();
  const bool needs_train = !folder || !request.names || request.needs_train(has_test);
  DatasetNames names = request.names.value_or(DatasetNames{.classes = request.targets.names});
  DatasetSplits splits;
  if (!request.names) names.columns = learned_columns(train_path(), options);
  if (needs_train) {
    splits.train = load_file(train_path(), request, names);
    names.classes = splits.train.names.classes;
  }
  if (folder && request.needs_test(has_test)) {
    splits.test = load_file(split_path(request.path, "test"), request, names);
  }
  return splits;
}

std::shared_ptr<const SampleSource> table_features(const std::filesystem::path& path,
                                                   const TableOptions& options,
                                                   const DatasetNames& names, BadRows bad_rows) {
  auto samples = std::make_shared<TableSamples>(path, delimiter_of(path, options.delimiter),
                                                TableEncoder(names.columns, options.missing));
  require_known_columns(samples->reader(), samples->header(), names.columns, options);
  if (bad_rows == BadRows::kRefuse) {
    samples->scan([](const CsvRecord&) {});
  } else {
    samples->find_rows();
  }
  return samples;
}

}  // namespace steelyard
