// A tar archive: its files lie in it, one behind the other.
#include "steelyard/framework/data/shards/tar.h"

#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace steelyard;
  static fuzz::MemoryFile input;
  fuzz::accepted([&] {
    const InputFile archive(input.holding(fuzz::view(data, size)));
    std::uint64_t end = 0;
    for (const TarMember& member : tar_members(archive)) {
      fuzz::require(
          member.begin >= end + 512 && member.size <= size && member.begin <= size - member.size,
          "a file is not behind its header and in the archive");
      end = member.begin + member.size;
    }
  });
  return 0;
}
