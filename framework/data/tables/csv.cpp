#include "steelyard/framework/data/tables/csv.h"

#include <algorithm>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/tensor/error.h"

namespace steelyard {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

bool is_line_end(char c) { return c == '\n' || c == '\r'; }

void require_text(const CsvRecord& record, const CsvReader& reader) {
  for (std::string_view field : record.fields) {
    while (!field.empty()) {
      const std::size_t length = field[0] == '\0' ? 0 : utf8_length(field);
      if (length == 0) {
        reader.fail(record.line, "expected text in UTF-8, got " + printable(field.substr(0, 8)));
      }
      field.remove_prefix(length);
    }
  }
}

}  // namespace

char delimiter_of(const std::filesystem::path& path, std::optional<Delimiter> given) {
  const std::string extension = path.extension().string();
  const Delimiter by_name =
      extension == ".tsv" || extension == ".tab" ? Delimiter::kTab : Delimiter::kComma;
  switch (given.value_or(by_name)) {
    case Delimiter::kComma:
      return ',';
    case Delimiter::kSemicolon:
      return ';';
    case Delimiter::kTab:
      return '\t';
  }
  return ',';
}

CsvReader::CsvReader(const std::filesystem::path& path, char delimiter)
    : file_(path), delimiter_(delimiter) {
  const std::string kind = kind_of(file_);
  const bool text = kind == "CSV" || kind == "text" || kind == "YAML" || kind == "JSON" ||
                    kind == "HTML or XML" || kind == "blank text" || kind.empty();
  if (!text) fail(1, "expected a table of text, got " + kind);
  fill();
  if (buffer_.starts_with("\xEF\xBB\xBF")) used_ = 3;
}

void CsvReader::fail(std::int64_t line, const std::string& what) const {
  throw InputError(name() + ":" + std::to_string(line) + ": " + what);
}

// Makes more of the file available; false at its end.
bool CsvReader::fill() {
  const std::uint64_t more = std::min<std::uint64_t>(file_.size() - read_, kBufferBytes);
  if (more == 0) return false;
  buffer_.erase(0, used_);
  used_ = 0;
  const std::size_t before = buffer_.size();
  buffer_.resize(before + more);
  file_.read(read_, buffer_.data() + before, more);
  read_ += more;
  return true;
}

bool CsvReader::next(CsvRecord& record) {
  if (!take_record(record)) return false;
  require_text(record, *this);
  return true;
}

bool CsvReader::next_or_line(CsvRecord& record) {
  try {
    return take_record(record);
  } catch (const InputError&) {
    take_line(record);
    return true;
  }
}

// Passes over empty lines.
bool CsvReader::take_record(CsvRecord& record) {
  for (;;) {
    const std::string_view text = std::string_view(buffer_).substr(used_);
    const bool is_end = read_ == file_.size();
    if (text.empty() && is_end) return false;
    record.line = line_;
    const std::size_t bytes = parse(text, is_end, record);
    if (bytes == 0) {
      if (text.size() > kMaxRecordBytes) {
        const std::string most = std::to_string(kMaxRecordBytes);
        fail(line_, "expected a record of at most " + most + " bytes; is a quote not closed?");
      }
      fill();
      continue;
    }
    const bool is_empty = record.fields.size() == 1 && record.fields[0].empty() && text[0] != '"';
    take(bytes, record);
    if (!is_empty) return true;
  }
}

// The record has so many bytes.
void CsvReader::take(std::size_t bytes, CsvRecord& record) {
  const std::string_view taken = std::string_view(buffer_).substr(used_, bytes);
  record.begin = read_ - (buffer_.size() - used_);
  record.end = record.begin + bytes;
  // A line ends by \n, \r\n or \r.
  for (std::size_t i = 0; i < taken.size(); ++i) {
    const bool pair = taken[i] == '\r' && i + 1 < taken.size() && taken[i + 1] == '\n';
    if (is_line_end(taken[i]) && !pair) ++line_;
  }
  used_ += bytes;
}

// The rest of the line, whatever it is; of one beyond kMaxRecordBytes so much.
void CsvReader::take_line(CsvRecord& record) {
  std::size_t end = std::string::npos;
  do {
    end = buffer_.find_first_of("\r\n", used_);
    // A \n after \r may be yet to come.
    if (end != std::string::npos && (buffer_[end] == '\n' || end + 1 < buffer_.size())) break;
  } while (buffer_.size() - used_ <= kMaxRecordBytes && fill());
  end = std::min(std::min(end, buffer_.size()), used_ + kMaxRecordBytes);
  std::size_t bytes = end - used_;
  if (end < buffer_.size()) bytes += buffer_.compare(end, 2, "\r\n") == 0 ? 2 : 1;
  record.line = line_;
  record.fields.clear();
  take(bytes, record);
}

CsvRecord CsvReader::at(std::uint64_t begin, std::uint64_t end, std::int64_t line) const {
  std::string text(end - begin, '\0');
  file_.read(begin, text.data(), text.size());
  CsvRecord record{.line = line, .begin = begin, .end = end};
  if (parse(text, true, record) != text.size()) {
    throw InputError(name() + ": the file has changed since it was opened");
  }
  require_text(record, *this);
  return record;
}

std::size_t CsvReader::parse(std::string_view text, bool is_end, CsvRecord& record) const {
  record.fields.assign(1, {});
  bool quoted = false;  // now
  bool closed = false;  // the field was quoted, and is over
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    std::string& field = record.fields.back();
    // What follows decides on a quote and a line's end.
    if (i + 1 == text.size() && !is_end && (c == '"' || c == '\r')) return 0;
    const char following = i + 1 < text.size() ? text[i + 1] : '\n';
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (following == '"') {
        field += c;
        ++i;
      } else {
        quoted = false;
        closed = true;
      }
    } else if (c == delimiter_) {
      record.fields.emplace_back();
      closed = false;
    } else if (is_line_end(c)) {
      const bool pair = c == '\r' && i + 1 < text.size() && following == '\n';
      return i + (pair ? 2 : 1);
    } else if (closed) {
      fail(record.line, "expected a delimiter after a closing quote, got '" +
                            printable(text.substr(i, 1)) + "'");
    } else if (c == '"') {
      if (!field.empty()) fail(record.line, "a quote in a field that does not begin with one");
      quoted = true;
    } else {
      field += c;
    }
  }
  if (!is_end) return 0;
  if (quoted) fail(record.line, "a quote that is never closed");
  return text.size();
}

}  // namespace steelyard
