// Votes and shuffles as the PTX manual defines them (vote.sync, shfl.sync, barrier.red).
#include "tests/support/cuda_emulation/collective.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace steelyard::emulation {
namespace {

constexpr std::array<const char*, 12> kNames = {
    "__syncthreads",   "__syncthreads_or", "__syncthreads_and", "__syncthreads_count",
    "__syncwarp",      "__shfl_sync",      "__shfl_up_sync",    "__shfl_down_sync",
    "__shfl_xor_sync", "__ballot_sync",    "__any_sync",        "__all_sync"};

std::string hexadecimal(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

// The lane that a shuffle reads; its own where the source would lie outside its group of lanes.
unsigned source_lane(const Request& request, unsigned lane) {
  const unsigned first = lane & ~(request.width - 1);
  const unsigned last = first + request.width - 1;
  switch (request.kind) {
    case Collective::kShuffle:
      return first + (request.selector & (request.width - 1));
    case Collective::kShuffleUp:
      return request.selector > lane - first ? lane : lane - request.selector;
    case Collective::kShuffleDown:
      return request.selector > last - lane ? lane : lane + request.selector;
    default:
      return (lane ^ request.selector) > last ? lane : lane ^ request.selector;
  }
}

}  // namespace

bool same_block_call(const Request& a, const Request& b) {
  return a.kind == b.kind && a.site.line == b.site.line &&
         std::string_view(a.site.file) == b.site.file;
}

std::string describe(const Request& request) {
  const std::string_view path = request.site.file;
  std::string text = kNames[static_cast<std::size_t>(request.kind)];
  text += " at ";
  text += path.substr(path.rfind('/') + 1);
  text += ':' + std::to_string(request.site.line);
  if (!is_block_wide(request.kind)) text += " with mask " + hexadecimal(request.mask);
  return text;
}

void check_warp_request(const Request& request, unsigned lane) {
  if ((request.mask >> lane & 1U) == 0) {
    throw std::logic_error("lane " + std::to_string(lane) +
                           " is not in its own mask: " + describe(request));
  }
  if (request.width > kWarpSize || !std::has_single_bit(request.width)) {
    throw std::logic_error("a shuffle's width must be a power of two up to 32, not " +
                           std::to_string(static_cast<int>(request.width)) + ": " +
                           describe(request));
  }
}

std::uint64_t warp_result(const WarpRequests& requests, unsigned present, unsigned lane,
                          unsigned char poison) {
  const Request& own = *requests[lane];
  if (own.kind == Collective::kSyncWarp) return 0;
  if (own.kind < Collective::kBallot) {
    const unsigned source = source_lane(own, lane);
    if (source < kWarpSize && (present >> source & 1U) != 0) return requests[source]->value;
    std::uint64_t bytes = 0;
    std::memset(&bytes, poison, sizeof bytes);
    return bytes;
  }
  unsigned ballot = 0;
  for (unsigned other = 0; other < kWarpSize; ++other) {
    if ((present >> other & 1U) != 0 && requests[other]->value != 0) ballot |= 1U << other;
  }
  if (own.kind == Collective::kBallot) return ballot;
  return own.kind == Collective::kAny ? ballot != 0 : ballot == present;
}

std::uint64_t block_result(Collective kind, int count, int threads) {
  switch (kind) {
    case Collective::kSyncThreadsOr:
      return count != 0;
    case Collective::kSyncThreadsAnd:
      return count == threads;
    case Collective::kSyncThreadsCount:
      return static_cast<std::uint64_t>(count);
    default:
      return 0;
  }
}

}  // namespace steelyard::emulation
