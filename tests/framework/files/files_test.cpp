#include "steelyard/framework/files/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "steelyard/framework/files/sha256.h"
#include "steelyard/framework/tensor/error.h"
#include "steelyard/framework/tensor/memory_error.h"
#include "steelyard/framework/tensor/suggest.h"
#include "tests/support/temporary_folder.h"

namespace steelyard {
namespace {

using testing::message_of;
using testing::read_bytes;
using testing::TemporaryFolder;
using testing::write_bytes;

// What is no file, by its path.
struct SpecialFiles {
  explicit SpecialFiles(const std::filesystem::path& folder) {
    const std::string pipe = folder / "pipe";
    const std::string socket = folder / "socket";
    EXPECT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(::mknod(socket.c_str(), S_IFSOCK | 0600, 0), 0);
    kinds = {{pipe, "a named pipe"}, {socket, "a socket"}, {folder.string(), "a folder"}};
  }

  std::vector<std::pair<std::string, std::string>> kinds;
};

TEST(Files, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const std::string bytes("a\0b\n\xFF", 5);
  write_file_atomic(folder / "f", bytes);
  EXPECT_EQ(read_file(folder / "f", 5), bytes);
  write_file_atomic(folder / "f", "");
  EXPECT_EQ(read_file(folder / "f", 0), "");
}

TEST(Files, RefusesToWriteAnEmptyPath) {
  EXPECT_EQ(message_of<InputError>([] { write_file_atomic("", "bytes"); }),
            "expected the path of a file to write, got an empty path");
}

TEST(Files, RefusesLongerFiles) {
  const TemporaryFolder folder;
  write_bytes(folder / "f", "123456");
  EXPECT_NE(message_of<InputError>([&] {
              read_file(folder / "f", 5);
            }).find("f: expected at most 5 bytes, got 6"),
            std::string::npos);
}

TEST(Files, RefusesWhatIsNoRegularFile) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<InputError>([&] { read_file(folder / "none", 9); }).find("No such file"),
            std::string::npos);
  EXPECT_EQ(message_of<InputError>([] { read_file("/dev/null", 9); }),
            "/dev/null: expected a regular file, got a device");
  const SpecialFiles special(folder.path());
  for (const auto& [path, kind] : special.kinds) {
    EXPECT_EQ(message_of<InputError>([&] { read_file(path, 9); }),
              path + ": expected a regular file, got " + kind);
  }
}

// Renaming a file over a device would replace it: a report to /dev/null, by root.
TEST(Files, WritesOverNothingButFiles) {
  const TemporaryFolder folder;
  const SpecialFiles special(folder.path());
  for (const auto& [path, kind] : special.kinds) {
    const auto before = std::filesystem::status(path).type();
    EXPECT_EQ(message_of<InputError>([&] { write_file_atomic(path, "x"); }),
              path + ": expected a regular file, got " + kind);
    EXPECT_EQ(std::filesystem::status(path).type(), before) << path;
  }
}

// The names of what is in the folder, by name.
std::vector<std::string> names_in(const TemporaryFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// The name of the temporary that is being written.
std::string temporary_in(const TemporaryFolder& folder) {
  for (const std::string& name : names_in(folder)) {
    if (name.ends_with(".tmp")) return name;
  }
  return "";
}

TEST(Files, TwoWritersOfOneFileDoNotMix) {
  const TemporaryFolder folder;
  {
    AtomicFile first(folder / "f");
    first.write("first");
    EXPECT_NE(message_of<InputError>([&] {
                write_file_atomic(folder / "f", "second");
              }).find("f: cannot create: another process is writing it"),
              std::string::npos);
    first.commit();
  }
  EXPECT_EQ(read_bytes(folder / "f"), "first");
  write_file_atomic(folder / "f", "third");
  EXPECT_EQ(read_bytes(folder / "f"), "third");
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
}

// Both are told of the other in most rounds, give way and try again.
TEST(Files, OfManyWritersAtOnceEachIsWholeOrRefused) {
  const TemporaryFolder folder;
  std::atomic<int> written = 0;
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&, i] {
      for (int round = 0; round < 20; ++round) {
        try {
          write_file_atomic(folder / "f", std::string(100'000, static_cast<char>('a' + i)));
          ++written;
        } catch (const InputError& error) {
          EXPECT_NE(std::string(error.what()).find("another process is writing it"),
                    std::string::npos)
              << error.what();
        }
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_GT(written, 0);
  const std::string bytes = read_bytes(folder / "f");
  EXPECT_EQ(bytes, std::string(100'000, bytes.at(0)));
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
}

TEST(Files, AtomicFileKeepsTheOldFileUntilCommit) {
  const TemporaryFolder folder;
  write_bytes(folder / "f", "old");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(read_bytes(folder / "f"), "old");
    EXPECT_EQ(names_in(folder), (std::vector<std::string>{"f", temporary_in(folder)}));
  }
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(read_bytes(folder / "f"), "new");
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
}

// Leftovers of this user, for this file: nothing else is anybody's to remove.
TEST(Files, LeftoversOfKilledRunsAreRemoved) {
  const TemporaryFolder folder;
  write_bytes(folder / "f.0123456789ab.tmp", "a leftover of a killed run");
  const std::vector<std::string> others = {"f.0123456789AB.tmp", "f.0123456789ab.tmp2",
                                           "f.012345.tmp", "f.tmp", "g.0123456789ab.tmp"};
  for (const std::string& other : others) write_bytes(folder / other, "another file");
  std::filesystem::create_symlink(folder / "g.0123456789ab.tmp", folder / "f.aaaaaaaaaaaa.tmp");
  write_file_atomic(folder / "f", "x");
  std::vector<std::string> expected = others;
  expected.insert(expected.end(), {"f", "f.aaaaaaaaaaaa.tmp"});
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(names_in(folder), expected);
}

TEST(Files, TemporariesHaveNamesThatNobodyCanPrepare) {
  const TemporaryFolder folder;
  std::set<std::string> names;
  for (int i = 0; i < 50; ++i) {
    const AtomicFile file(folder / "f");
    names.insert(temporary_in(folder));
  }
  EXPECT_EQ(names.size(), 50U);
}

// As with an open() of a new file.
TEST(Files, NewFilesHaveThePermissionsOfTheUmask) {
  const TemporaryFolder folder;
  for (const mode_t mask : {022, 077, 002}) {
    const mode_t before = ::umask(mask);
    write_file_atomic(folder / "f", "x");
    ::umask(before);
    struct stat info = {};
    ASSERT_EQ(::stat((folder / "f").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0666 & ~mask);
    EXPECT_EQ(info.st_uid, ::geteuid());
  }
}

// Another user's files by any name do not become ours, keep us from writing or are removed.
TEST(Files, FilesOfOthersInASharedFolderAreLeftAlone) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may give files away";
  const TemporaryFolder folder;
  const std::vector<std::string> planted = {"f.0123456789ab.tmp", "f.tmp"};
  std::vector<Descriptor> held;
  for (const std::string& name : planted) {
    write_bytes(folder / name, "a stranger's");
    ASSERT_EQ(::chown((folder / name).c_str(), 65534, 65534), 0);
    held.emplace_back(::open((folder / name).c_str(), O_RDONLY));
    ASSERT_EQ(::flock(held.back().get(), LOCK_EX), 0);
  }
  write_file_atomic(folder / "f", "ours");
  struct stat info = {};
  ASSERT_EQ(::stat((folder / "f").c_str(), &info), 0);
  EXPECT_EQ(info.st_uid, 0U);
  EXPECT_EQ(read_bytes(folder / "f"), "ours");
  for (const std::string& name : planted) {
    EXPECT_EQ(read_bytes(folder / name), "a stranger's") << name;
  }
}

TEST(Files, WritingIntoNoFolderSaysSo) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<InputError>([&] {
              write_file_atomic(folder / "no/f", "x");
            }).find("no/f: cannot create: No such file"),
            std::string::npos);
}

// "f.tmp" was the temporary of earlier versions, which wrote to what a hard link led to.
TEST(Files, PlantedLinksLeadNowhere) {
  const TemporaryFolder folder;
  write_bytes(folder / "elsewhere", "precious");
  for (const bool hard : {false, true}) {
    for (const std::string name : {"f", "f.tmp", "f.0123456789ab.tmp"}) {
      hard ? std::filesystem::create_hard_link(folder / "elsewhere", folder / name)
           : std::filesystem::create_symlink(folder / "elsewhere", folder / name);
      write_file_atomic(folder / "f", "x");
      EXPECT_EQ(read_bytes(folder / "elsewhere"), "precious") << name;
      EXPECT_EQ(read_bytes(folder / "f"), "x") << name;
      EXPECT_FALSE(std::filesystem::is_symlink(folder / "f"));
      std::filesystem::remove(folder / "f");
      std::filesystem::remove(folder / name);
    }
  }
}

TEST(Files, AGrowingFileStaysTheSameFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "elsewhere", "precious");
  write_bytes(folder / "f", "old");
  GrowingFile file(folder / "f", "one ");
  file.append("two ");
  EXPECT_EQ(read_bytes(folder / "f"), "one two ");
  std::filesystem::rename(folder / "f", folder / "moved");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "f");
  file.append("three");
  EXPECT_EQ(read_bytes(folder / "moved"), "one two three");
  EXPECT_EQ(read_bytes(folder / "elsewhere"), "precious");
}

TEST(Files, LogsGrowAndAreNoLinks) {
  const TemporaryFolder folder;
  for (const std::string text : {"one ", "two"}) {
    const Descriptor log = open_to_append(folder / "log");
    ASSERT_EQ(::write(log.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  EXPECT_EQ(read_bytes(folder / "log"), "one two");
  std::filesystem::create_symlink(folder / "log", folder / "symbolic");
  EXPECT_EQ(message_of<InputError>([&] { open_to_append(folder / "symbolic"); }),
            (folder / "symbolic").string() + ": expected a regular file, got a symbolic link");
  std::filesystem::create_hard_link(folder / "log", folder / "hard");
  EXPECT_EQ(message_of<InputError>([&] { open_to_append(folder / "hard"); }),
            (folder / "hard").string() + ": expected a file of one name, got a hard link");
  EXPECT_NE(message_of<InputError>([&] {
              open_to_append(folder / "no/log");
            }).find("no/log: cannot create: No such file"),
            std::string::npos);
}

// A limit on file sizes stands for a full disk.
TEST(Files, FailedWritesKeepTheOldFile) {
  const TemporaryFolder folder;
  write_bytes(folder / "f", "old");
  rlimit before = {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto previous = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message = message_of<std::runtime_error>(
      [&] { write_file_atomic(folder / "f", std::string(5000, 'x')); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, previous);
  EXPECT_NE(message.find("f: cannot write: File too large"), std::string::npos) << message;
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_EQ(names_in(folder), std::vector<std::string>{"f"});
}

TEST(Files, PrintableKeepsMessagesOnOneLine) {
  EXPECT_EQ(printable("a\nb\x01\x7f"), "a\\x0ab\\x01\\x7f");
  EXPECT_EQ(printable("\xC3\xA9t\xC3\xA9"), "\xC3\xA9t\xC3\xA9");
  EXPECT_EQ(printable("abc\xC3\xA9", 4), "abc\xC3\xA9");  // a character is not cut
  EXPECT_EQ(printable("abcdef", 4), "abcd...");
}

// Each has an effect on a terminal, or hides what is there.
TEST(Files, PrintableEscapesWhatATerminalActsOn) {
  EXPECT_EQ(printable("\x1b[31mred\x1b]0;title\x07"), "\\x1b[31mred\\x1b]0;title\\x07");
  EXPECT_EQ(printable("\xC2\x9B"
                      "31m"),
            "\\xc2\\x9b31m");  // CSI in one character
  EXPECT_EQ(printable("a\xE2\x80\xAE"
                      "b"),
            "a\\xe2\\x80\\xaeb");  // right to left
  EXPECT_EQ(printable("\u061c|\u200e|\u200f|\u202a|\u2067"),
            "\\xd8\\x9c|\\xe2\\x80\\x8e|\\xe2\\x80\\x8f|\\xe2\\x80\\xaa|\\xe2\\x81\\xa7");
  EXPECT_EQ(printable("a\rb\x08"), "a\\x0db\\x08");         // overwrites
  EXPECT_EQ(printable("\xE0\x80\x80\xED\xA0\x80\xF5\xFF"),  // overlong, surrogate
            "\\xe0\\x80\\x80\\xed\\xa0\\x80\\xf5\\xff");
  EXPECT_EQ(printable("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
}

TEST(Files, PrintableJsonHasNoControlCharacters) {
  EXPECT_EQ(printable_json(
                "{\n \"a\\u001b\": \"\u009b31m \x7f\u202e\u061c\u2029 caf\u00e9 \U0001f600\"}"),
            "{\n \"a\\u001b\": \"\\u009b31m \\u007f\\u202e\\u061c\\u2029 caf\u00e9 \U0001f600\"}");
}

TEST(Files, MemoryThatRunsOutIsSaidOfWhatNeededIt) {
  EXPECT_EQ(message_of<OutOfMemory>([] {
              with_memory_for("x.bin", []() -> int { throw OutOfMemory("asked for 5 bytes"); });
            }),
            "x.bin: asked for 5 bytes");
  EXPECT_EQ(message_of<OutOfMemory>(
                [] { with_memory_for("x.bin", []() -> int { throw std::bad_alloc(); }); }),
            "x.bin: out of memory");
  EXPECT_EQ(with_memory_for("x.bin", [] { return 3; }), 3);
}

// FIPS 180-4's examples.
TEST(Sha256, MatchesPublishedDigests) {
  EXPECT_EQ(sha256_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  const TemporaryFolder folder;
  write_bytes(folder / "million", std::string(1'000'000, 'a'));
  EXPECT_EQ(sha256_of_file(folder / "million"),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  write_bytes(folder / "empty", "");
  EXPECT_EQ(sha256_of_file(folder / "empty"), sha256_of(""));
}

// The digest of all their digests is that of Python's hashlib.
TEST(Sha256, TakesAnyLengthInPiecesWithAndWithoutTheProcessorsInstructions) {
  for (const bool instructions : {true, false}) {
    std::string digests;
    for (std::size_t length = 0; length < 300; ++length) {
      std::string bytes;
      for (std::size_t i = 0; i < length; ++i) bytes += static_cast<char>(i * 7);
      Sha256 hash(instructions);
      const std::size_t piece = 1 + length % 67;
      for (std::size_t at = 0; at < bytes.size(); at += piece) {
        hash.update(std::string_view(bytes).substr(at, piece));
      }
      digests += hash.hex();
    }
    EXPECT_EQ(sha256_of(digests),
              "2956ef4e8392a8964f6f552bfba7613a805ef8f8550abe7eedcd072dcec36695");
  }
}

TEST(Sha256, OfManyMessagesOnAnyNumberOfThreadsEachOnceItIsPrepared) {
  for (const std::size_t count : {0, 1, 2, 7, 40}) {
    for (const int threads : {1, 2, 5}) {
      std::vector<std::string> messages(count);
      std::vector<std::string_view> views;
      for (std::size_t i = 0; i < count; ++i) {
        messages[i].resize(i * i * 37 % 1000);
        views.emplace_back(messages[i]);
      }
      const auto digests = sha256_of_each(views, threads, [&](std::size_t i) {
        for (std::size_t k = 0; k < messages[i].size(); ++k) {
          messages[i][k] = static_cast<char>(i + k * 7);
        }
      });
      ASSERT_EQ(digests.size(), count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(digests[i], sha256_of(messages[i])) << i;
    }
  }
}

TEST(Sha256, StartsAnewAfterHex) {
  Sha256 hash;
  hash.update("xyz");
  hash.hex();
  hash.update("a");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), sha256_of("abc"));
}

TEST(NearestWord, FindsTyposOnly) {
  const std::vector<std::string> words = {"cifar10", "fashion_mnist", "safetensors"};
  EXPECT_EQ(nearest_word("fashon_mnist", words), "fashion_mnist");
  EXPECT_EQ(nearest_word("cifar", words), "cifar10");
  EXPECT_EQ(nearest_word("imagenet", words), "");
  EXPECT_EQ(nearest_word("kernel", {"stride", "kernel_size"}), "kernel_size");
  EXPECT_EQ(nearest_word("ke", {"stride", "kernel_size"}), "");
  EXPECT_EQ(nearest_word(std::string(1000, 'c'), words), "");
}

}  // namespace
}  // namespace steelyard
