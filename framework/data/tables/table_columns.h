// The columns of a table: their names and roles, what a training set says about them, and the
// features that they give.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/data/dataset_names.h"
#include "steelyard/framework/data/tables/csv.h"
#include "steelyard/framework/data/tables/table_fields.h"
#include "steelyard/framework/data/tables/table_options.h"
#include "steelyard/framework/data/target_kind.h"

namespace steelyard {

inline constexpr const char* kNoRows = "expected rows beneath the names of the columns";

// The columns of a file by their names.
class TableHeader {
 public:
  // Reads the first record. Throws InputError where there is none or a name stands twice.
  explicit TableHeader(CsvReader& reader);

  const std::vector<std::string>& names() const { return record_.fields; }
  // Throws InputError where there is no such column; `key` asks for it.
  std::size_t place(const CsvReader& reader, const std::string& name, const std::string& key) const;

 private:
  CsvRecord record_;
  std::map<std::string, std::size_t> places_;
};

// Throws InputError for a row of another length than the header's.
void require_length(const CsvReader& reader, const TableHeader& header, const CsvRecord& row);
// The next row, of the header's length.
bool next_row(CsvReader& reader, const TableHeader& header, CsvRecord& row);

// The features of a row.
class TableEncoder {
 public:
  TableEncoder(std::vector<TableColumn> columns, std::vector<std::string> missing);

  std::int64_t features() const { return features_; }
  // Where the columns are in a file. Throws InputError for one that it lacks.
  std::vector<std::size_t> places(const CsvReader& reader, const TableHeader& header) const;
  // places[i]: of column i in the row. Throws InputError with file, line and column.
  void encode(const CsvReader& reader, const CsvRecord& row, const std::vector<std::size_t>& places,
              float* to) const;

 private:
  std::vector<TableColumn> columns_;
  std::vector<std::string> missing_;
  std::int64_t features_;
};

// A column is a target, of categories or ignored; it may be none of these. Throws InputError for
// one with two roles, and with `labels` unless there is one target, or several that are numbers or
// marks.
void require_one_role_each(const TableOptions& options, std::optional<TargetKind> kind,
                           bool labels);

// Columns that nobody speaks of must not be left out silently.
void require_known_columns(const CsvReader& reader, const TableHeader& header,
                           const std::vector<TableColumn>& columns, const TableOptions& options);

// One pass over the training set: its columns, without the target's.
std::vector<TableColumn> learned_columns(const std::filesystem::path& path,
                                         const TableOptions& options);

}  // namespace steelyard
