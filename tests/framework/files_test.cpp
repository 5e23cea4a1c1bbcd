#include "steelyard/framework/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <stdexcept>

#include "steelyard/framework/error.h"
#include "steelyard/framework/memory_error.h"
#include "steelyard/framework/sha256.h"
#include "steelyard/framework/suggest.h"
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
  ASSERT_EQ(::mkfifo((folder / "f.tmp").c_str(), 0600), 0);
  EXPECT_EQ(message_of<InputError>([&] { write_file_atomic(folder / "f", "x"); }),
            (folder / "f.tmp").string() + ": expected a regular file, got a named pipe");
}

TEST(Files, TwoWritersOfOneFileDoNotMix) {
  const TemporaryFolder folder;
  {
    AtomicFile first(folder / "f");
    first.write("first");
    EXPECT_NE(message_of<InputError>([&] {
                write_file_atomic(folder / "f", "second");
              }).find("f.tmp: cannot create: another process is writing it"),
              std::string::npos);
    first.commit();
  }
  EXPECT_EQ(read_bytes(folder / "f"), "first");
  write_file_atomic(folder / "f", "third");
  EXPECT_EQ(read_bytes(folder / "f"), "third");
}

TEST(Files, AtomicFileKeepsTheOldFileUntilCommit) {
  const TemporaryFolder folder;
  write_bytes(folder / "f", "old");
  write_bytes(folder / "f.tmp", "a longer leftover of a killed run");
  {
    AtomicFile file(folder / "f");
    file.write("new");
    EXPECT_EQ(read_bytes(folder / "f"), "old");
  }
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "f.tmp"));
  write_bytes(folder / "f.tmp", "a longer leftover of a killed run");
  write_file_atomic(folder / "f", "new");
  EXPECT_EQ(read_bytes(folder / "f"), "new");
  EXPECT_FALSE(std::filesystem::exists(folder / "f.tmp"));
}

TEST(Files, WritingIntoNoFolderSaysSo) {
  const TemporaryFolder folder;
  EXPECT_NE(message_of<InputError>([&] {
              write_file_atomic(folder / "no/f", "x");
            }).find("no/f.tmp: cannot create: No such file"),
            std::string::npos);
}

TEST(Files, RefusesALinkInPlaceOfTheTemporary) {
  const TemporaryFolder folder;
  write_bytes(folder / "elsewhere", "precious");
  std::filesystem::create_symlink(folder / "elsewhere", folder / "f.tmp");
  message_of<InputError>([&] { write_file_atomic(folder / "f", "x"); });
  EXPECT_EQ(read_bytes(folder / "elsewhere"), "precious");
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
  EXPECT_NE(message.find("f.tmp: cannot write: File too large"), std::string::npos) << message;
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "f.tmp"));
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
            "a\\xe2\\x80\\xaeb");                           // right to left
  EXPECT_EQ(printable("a\rb\x08"), "a\\x0db\\x08");         // overwrites
  EXPECT_EQ(printable("\xE0\x80\x80\xED\xA0\x80\xF5\xFF"),  // overlong, surrogate
            "\\xe0\\x80\\x80\\xed\\xa0\\x80\\xf5\\xff");
  EXPECT_EQ(printable("\xF0\x9F\x98\x80"), "\xF0\x9F\x98\x80");
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
  const TemporaryFolder folder;
  write_bytes(folder / "million", std::string(1'000'000, 'a'));
  EXPECT_EQ(sha256_of_file(folder / "million"),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  write_bytes(folder / "empty", "");
  EXPECT_EQ(sha256_of_file(folder / "empty"), sha256_of(""));
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
