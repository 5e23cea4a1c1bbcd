// A table: its records read one after another, by their place, and written again.
#include "steelyard/framework/data/tables/csv.h"

#include "tests/fuzz/fuzz.h"

namespace steelyard {
namespace {

using Rows = std::vector<std::vector<std::string>>;

Rows read(const std::filesystem::path& path) {
  Rows rows;
  CsvReader reader(path, ',');
  CsvRecord record;
  std::int64_t line = 0;
  while (reader.next(record)) {
    fuzz::require(record.line > line, "lines do not go up");
    line = record.line;
    fuzz::require(reader.at(record.begin, record.end, record.line).fields == record.fields,
                  "read by its place a record differs");
    rows.push_back(record.fields);
  }
  return rows;
}

// Whatever the text is, records and lines pass over all of it.
void read_with_lines(const std::filesystem::path& path) {
  CsvReader reader(path, ',');
  CsvRecord record;
  std::uint64_t end = 0;
  while (reader.next_or_line(record)) {
    fuzz::require(record.begin >= end && record.end > record.begin, "records overlap");
    end = record.end;
  }
}

std::string written(const Rows& rows) {
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? "\"" : ",\"";
      for (const char c : row[i]) text.append(c == '"' ? 2 : 1, c);
      text += '"';
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace
}  // namespace steelyard

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  fuzz::accepted([&] { read_with_lines(input.holding(fuzz::view(data, size))); });
  fuzz::accepted([&] {
    const Rows rows = read(input.holding(fuzz::view(data, size)));
    if (rows.empty()) return;
    fuzz::require(read(input.holding(written(rows))) == rows, "written again it differs");
  });
  return 0;
}
