#include "steelyard/recipes/text/tokenization.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "steelyard/framework/files/file_kind.h"
#include "steelyard/framework/files/gguf/gguf.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/printable.h"
#include "steelyard/recipes/text/gguf_tokenizer.h"
#include "steelyard/recipes/text/huggingface_tokenizer.h"

namespace steelyard {
namespace {

constexpr std::string_view kOfTokenizer = "the tokenizer: ";  // as kScript says it

// Arguments: whether texts may be cut at the beginnings of lines, whether control tokens are read,
// the tokens before and after a document ("" for none), the field of .jsonl, the files. It reads
// the tokenizer and writes the numbers of tokens as u32, then the number of documents and the size
// of the vocabulary as u64.
//
// A text is cut after a line feed between a character that is no space and an ASCII letter: no
// word of a GGUF file's tokenizers, and no composition of characters, goes over such a place.
constexpr const char* kScript = R"py(
import array
import json
import os
import sys
outputs = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
from tokenizers import Tokenizer
cuts, special, begin, end, field, *paths = sys.argv[1:]
ROOM = 1 << 18
try:
    tokenizer = Tokenizer.from_str(sys.stdin.buffer.read().decode())
except Exception as error:
    sys.exit(f"the tokenizer: {error}")
tokenizer.no_padding()
tokenizer.no_truncation()
tokenizer.encode_special_tokens = special == "0"
def number(text):
    if not text:
        return []
    found = tokenizer.token_to_id(text)
    if found is None:
        sys.exit(f"the tokenizer: no token {text!r}")
    return [found]
before, after = number(begin), number(end)
def cut(text):
    """Where the last line begins that may be cut off; 0 if none may."""
    at = len(text)
    while (at := text.rfind("\n", 0, at)) > 0:
        last, first = text[at - 1], text[at + 1:at + 2]
        if (last.isalnum() or last.isascii() and not last.isspace()) and first.isascii() and first.isalpha():
            return at + 1
    return 0
def decoded(data, path, offset):
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        sys.exit(f"{path}: byte {offset + error.start}: expected UTF-8, got {data[error.start]:#04x}")
def lines(path):
    """Pieces of a document for each line."""
    with open(path, "rb") as file:
        offset = 0
        for n, line in enumerate(file, 1):
            text = decoded(line, path, offset)
            offset += len(line)
            if not text.strip():
                continue
            try:
                document = json.loads(text)[field]
                document.encode()  # no half of a character
            except Exception:
                sys.exit(f"{path}:{n}: expected an object with a text {field!r}")
            yield from pieces(document)
            yield None
def whole(path):
    with open(path, "rb") as file:
        held, text, offset = b"", "", 0
        while data := file.read(4 * ROOM):
            data = held + data
            # Bytes of a character that goes on in the next part.
            tail = next((n for n in (1, 2, 3) if n <= len(data) and data[-n] >= 0xc0), 0)
            held = data[len(data) - tail:] if tail else b""
            text += decoded(data[:len(data) - tail], path, offset)
            offset += len(data) - tail
            if cuts == "1" and (at := cut(text)):
                yield from pieces(text[:at])
                text = text[at:]
        yield from pieces(text + decoded(held, path, offset))
    yield None
def pieces(text):
    while cuts == "1" and len(text) > ROOM and (at := cut(text[:ROOM])):
        yield text[:at]
        text = text[at:]
    if text:
        yield text
documents, opened, batch, waiting = 0, False, [], 0
def flush():
    global documents, opened, waiting
    texts = [piece for piece in batch if piece is not None]
    encoded = iter(tokenizer.encode_batch(texts, add_special_tokens=False))
    numbers = array.array("I")
    for piece in batch:
        if piece is not None:
            ids = next(encoded).ids
            if ids and not opened:
                numbers.extend(before)
                opened = True
            numbers.extend(ids)
        elif opened:
            numbers.extend(after)
            documents += 1
            opened = False
    numbers.tofile(outputs)
    batch.clear()
    waiting = 0
for path in paths:
    for piece in lines(path) if path.endswith(".jsonl") else whole(path):
        batch.append(piece)
        waiting += len(piece or "") + 1
        if waiting > 16 * ROOM:
            flush()
flush()
array.array("Q", [documents, tokenizer.get_vocab_size()]).tofile(outputs)
outputs.close()
)py";

Tokens tokens_by(const deploy::PythonProgram& python, const LanguageTokenizer& tokenizer,
                 const TokenizationOptions& options) {
  const std::string begin = options.begin.value_or(tokenizer.begin);
  const std::string end = options.end.value_or(tokenizer.end);
  std::vector<std::string> arguments{tokenizer.cuts ? "1" : "0", options.special ? "1" : "0", begin,
                                     end, options.field};
  for (const std::filesystem::path& text : options.texts) {
    const InputFile regular(text);  // Python would wait for the writer of a named pipe
    arguments.push_back(text.string());
  }
  const deploy::ScratchFile input;
  input.fill(tokenizer.json.data(), tokenizer.json.size());
  try {
    Tokens made{deploy::run_script(python.path, kScript, arguments, input)};
    std::array<std::uint64_t, 2> counts = {};
    const std::uint64_t bytes = made.numbers.size() - sizeof counts;
    made.numbers.read(counts.data(), sizeof counts, bytes);
    made.count = static_cast<std::int64_t>(bytes / sizeof(std::uint32_t));
    made.documents = static_cast<std::int64_t>(counts[0]);
    made.vocabulary = static_cast<std::int64_t>(counts[1]);
    made.begin = begin;
    made.end = end;
    return made;
  } catch (const deploy::PythonError& error) {
    constexpr std::size_t kMaxTextBytes = 600;
    const std::string_view text = error.what();
    if (!text.starts_with(kOfTokenizer)) throw InputError(printable(text, kMaxTextBytes));
    throw InputError(printable(options.tokenizer.string()) + ": " +
                     printable(text.substr(kOfTokenizer.size()), kMaxTextBytes));
  }
}

}  // namespace

std::optional<deploy::PythonProgram> find_tokenizers(const std::string& python) {
  return deploy::find_python(python, "tokenizers");
}

Tokens tokenize(const deploy::PythonProgram& python, const TokenizationOptions& options) {
  if (is_folder(options.tokenizer)) {
    TokenizationOptions of_file = options;
    of_file.tokenizer /= kTokenizerFile;  // for messages
    return tokens_by(python, huggingface_tokenizer(options.tokenizer), of_file);
  }
  if (kind_of(InputFile(options.tokenizer)) == kGgufKind) {
    return tokens_by(python, gguf_tokenizer(GgufReader(options.tokenizer)), options);
  }
  LanguageTokenizer own;
  own.json = read_file(options.tokenizer, kMostTokenizerBytes);
  return tokens_by(python, own, options);
}

std::vector<std::int64_t> tokens_of_text(const deploy::PythonProgram& python,
                                         const LanguageTokenizer& tokenizer,
                                         const std::filesystem::path& source,
                                         const std::string& text, bool special) {
  if (!is_utf8(text)) throw InputError("expected a text in UTF-8, got '" + printable(text) + "'");
  const deploy::ScratchFile file;
  file.fill(text.data(), text.size());
  const std::string path =
      "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(file.descriptor());
  const Tokens made = tokens_by(
      python, tokenizer, {.tokenizer = source, .texts = {path}, .end = "", .special = special});
  std::vector<std::uint32_t> numbers(static_cast<std::size_t>(made.count));
  made.numbers.read(numbers.data(), numbers.size() * sizeof(std::uint32_t));
  return {numbers.begin(), numbers.end()};
}

void write_tokens(const Tokens& tokens, std::int64_t first, std::int64_t count, TokenType type,
                  const std::filesystem::path& path) {
  constexpr std::int64_t kRoom = 1 << 18;
  AtomicFile file(path);
  std::vector<std::uint32_t> wide(kRoom);
  std::vector<std::uint16_t> narrow(type == TokenType::kU16 ? kRoom : 0);
  for (std::int64_t at = 0; at < count; at += kRoom) {
    const auto some = static_cast<std::size_t>(std::min(kRoom, count - at));
    tokens.numbers.read(wide.data(), some * sizeof(std::uint32_t),
                        static_cast<std::uint64_t>(first + at) * sizeof(std::uint32_t));
    if (type == TokenType::kU32) {
      file.write(wide.data(), some * sizeof(std::uint32_t));
      continue;
    }
    std::transform(wide.begin(), wide.begin() + static_cast<std::ptrdiff_t>(some), narrow.begin(),
                   [](std::uint32_t token) { return static_cast<std::uint16_t>(token); });
    file.write(narrow.data(), some * sizeof(std::uint16_t));
  }
  file.commit();
}

}  // namespace steelyard
