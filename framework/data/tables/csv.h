// CSV and TSV files: RFC 4180, with other delimiters and line ends.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "steelyard/framework/data/tables/table_options.h"
#include "steelyard/framework/files/files.h"

namespace steelyard {

// Longer records are refused.
inline constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 24;

struct CsvRecord {
  std::vector<std::string> fields = {};
  std::int64_t line = 0;    // of the file, from 1, where it begins
  std::uint64_t begin = 0;  // its bytes, with the line's end
  std::uint64_t end = 0;
};

// The delimiter of a file: a tab in .tsv and .tab, else a comma.
char delimiter_of(const std::filesystem::path& path, std::optional<Delimiter> given);

// Reads records one after another, whatever the file's size. A field may be quoted; in quotes, two
// quotes are one, and delimiters and line ends are text. Lines without a character are passed over.
// A UTF-8 byte-order mark at the beginning is no text. Throws InputError with file and line for a
// quote in a field that does not begin with one, for text after a closing quote, for a quote that
// is never closed, for a zero byte and for text that is not UTF-8.
class CsvReader {
 public:
  CsvReader(const std::filesystem::path& path, char delimiter);

  // The next record; false at the end.
  bool next(CsvRecord& record);
  // The next record, without errors: what is no record is taken for a line, of which at() says what
  // is wrong with it. The fields are not to be used.
  bool next_or_line(CsvRecord& record);
  // A record that either gave, read again from [begin, end). `line` is for messages. Thread-safe.
  CsvRecord at(std::uint64_t begin, std::uint64_t end, std::int64_t line) const;
  // Throws InputError that names the file and the line.
  [[noreturn]] void fail(std::int64_t line, const std::string& what) const;
  const std::filesystem::path& path() const { return file_.path(); }
  std::string name() const { return printable(file_.path().string(), kMaxPathBytes); }

 private:
  bool fill();
  bool take_record(CsvRecord& record);
  void take_line(CsvRecord& record);
  void take(std::size_t bytes, CsvRecord& record);
  // Bytes of the record that `text` begins with; 0 where more text is needed.
  std::size_t parse(std::string_view text, bool is_end, CsvRecord& record) const;

  InputFile file_;
  char delimiter_;
  std::string buffer_;
  std::size_t used_ = 0;    // of the buffer
  std::uint64_t read_ = 0;  // of the file
  std::int64_t line_ = 1;
};

}  // namespace steelyard
