// The calls at which threads of a block or lanes of a warp wait for one another, and what each of
// them gets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace steelyard::emulation {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xFFFFFFFFU;

enum class Collective : std::uint8_t {
  kSyncThreads,
  kSyncThreadsOr,
  kSyncThreadsAnd,
  kSyncThreadsCount,
  kSyncWarp,
  kShuffle,
  kShuffleUp,
  kShuffleDown,
  kShuffleXor,
  kBallot,
  kAny,
  kAll,
};

inline bool is_block_wide(Collective kind) { return kind <= Collective::kSyncThreadsCount; }

// A place in the sources. (clang 14 has no std::source_location.)
struct Site {
  const char* file = "";
  int line = 0;
  static constexpr Site current(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
  }
};

// What one thread asks for.
struct Request {
  Collective kind = Collective::kSyncThreads;
  unsigned mask = kFullMask;  // of lanes; warp collectives only
  std::uint64_t value = 0;    // a predicate, or the bytes to shuffle
  unsigned bytes = 0;         // of a shuffled value
  unsigned selector = 0;      // a shuffle's source lane, distance or lane mask
  unsigned width = kWarpSize;
  Site site;
};

// Whether two lanes take part in the same call. Their places in the source may differ.
inline bool same_warp_call(const Request& a, const Request& b) {
  return a.kind == b.kind && a.mask == b.mask && a.bytes == b.bytes;
}
// The whole block must come to the same place.
bool same_block_call(const Request& a, const Request& b);

// "__syncthreads() at reduce.cu:12", for warps with the mask.
std::string describe(const Request& request);

// Throws std::logic_error for a mask without the lane itself and for impossible widths.
void check_warp_request(const Request& request, unsigned lane);

// The lanes' requests of one warp call; only lanes in `present` have one.
using WarpRequests = std::array<const Request*, kWarpSize>;

// What `lane` gets. Shuffles from lanes that are not present give bytes of poison.
std::uint64_t warp_result(const WarpRequests& requests, unsigned present, unsigned lane,
                          unsigned char poison);

// What all threads get when `count` of `threads` predicates are true.
std::uint64_t block_result(Collective kind, int count, int threads);

}  // namespace steelyard::emulation
